package vhostuser_test

import (
	"fmt"
	"testing"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/vringtest"
)

// valid is one well-formed message of every type, for a running session.
func (v *vm) valid(t *testing.T) map[string]struct {
	p   []byte
	fds []int
} {
	r := v.mem.Regions()
	logFD, _ := newLog(t, 1<<20)
	sock := vringtest.NewEvent(t).FD
	region := memTable(1, r[0])[8:]
	type m = struct {
		p   []byte
		fds []int
	}
	a := v.addr(0)
	addr := u32s(a.Index, a.Flags)
	for _, x := range []uint64{a.Desc, a.Used, a.Avail, a.Log} {
		addr = append(addr, u64(x)...)
	}
	out := map[string]m{}
	add := func(r Request, payload []byte, fds ...int) {
		out[fmt.Sprintf("%v %d", r, len(out))] = m{Message(r, NeedReply, payload), fds}
	}
	for _, id := range []Request{1, 3, 4, 15, 17, 34, 36, 40} {
		add(id, nil)
	}
	add(2, u64(ringBits|VhostUserFProtocolFeatures))
	add(16, u64(ProtocolFReplyAck))
	add(5, memTable(2, r[0], r[1]), r[0].FD, r[1].FD)
	add(6, append(u64(1<<20), u64(0)...), logFD)
	add(7, nil, v.call[0].FD)
	add(8, u32s(2, 64))
	add(9, addr)
	add(10, u32s(2, 5))
	add(11, u32s(0, 0))
	for _, id := range []Request{12, 13, 14} {
		add(id, u64(1), v.call[1].FD)
		add(id, u64(1|1<<8))
	}
	add(18, u32s(0, 0))
	add(19, u64(0x123456789abc))
	add(20, u64(1500))
	add(21, nil, sock)
	add(24, append(u32s(0, 12, 0), make([]byte, 12)...))
	add(25, append(u32s(0, 2, 1), 0, 0))
	add(37, append(make([]byte, 8), region...), r[0].FD)
	add(38, append(make([]byte, 8), region...), r[0].FD)
	add(39, u64(0))
	add(1000, u64(0)) // unknown
	return out
}

// TestM21 leaves after every byte of every message: while rings run, with the
// descriptors sent along, and with the reply of a whole message not read.
func TestM21(t *testing.T) {
	b := newBench(t)
	v := newVM(t)
	for name, m := range v.valid(t) {
		t.Run(name, func(t *testing.T) {
			b.tb = t
			for n := 1; n <= len(m.p); n++ {
				keepsFDs(t, func() {
					f := b.start(v)
					if err := f.Raw(m.p[:n], m.fds...); err != nil {
						t.Fatal(err)
					}
					if n%3 != 0 { // else all of it is there at once
						b.turn()
					}
					f.Close()
					b.turn()
				})
				if st := b.srv.State(); st.Connected || st.Regions != 0 || b.loop.Timers().Len() != 0 {
					t.Fatalf("after %d of %d bytes: connected %v, %d regions, %d timers", n, len(m.p), st.Connected, st.Regions, b.loop.Timers().Len())
				}
				if b.dev.Running[0] != nil || b.dev.Running[1] != nil || b.dev.Enabled[0] {
					t.Fatalf("after %d of %d bytes: device still has rings", n, len(m.p))
				}
			}
		})
	}
	b.tb = t
	if n := countMappings(t, "vringtest"); n != 1 {
		t.Errorf("guest memory is mapped %d times, want once, by the test", n)
	}
	b.start(v)
	b.dev.Take()
}
