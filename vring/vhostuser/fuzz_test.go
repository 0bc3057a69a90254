package vhostuser_test

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/vringtest"
)

// A fuzz input is a first byte that says how the session begins, and then chunks
// of a byte for descriptors (how many in the low three bits, which one is first
// in the others), a byte for the length, and as many bytes to send in one go.
const (
	fuzzRaw     = 0 // nothing negotiated
	fuzzSession = 1 // everything negotiated
	fuzzRunning = 2 // two rings run
)

func chunk(fds, first int, p []byte) []byte {
	return append([]byte{byte(fds | first<<3), byte(len(p))}, p...)
}

// fuzzFDs is what a frontend may send: an eventfd, guest memory, a pipe, sockets.
func fuzzFDs(tb testing.TB, v *vm) []int {
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil {
		tb.Fatal(err)
	}
	s, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		tb.Fatal(err)
	}
	file := openFile(tb, tb.TempDir()+"/file", unix.O_RDWR|unix.O_CREAT)
	unix.Ftruncate(file, 1<<20)
	for _, fd := range []int{p[0], p[1], s[0], s[1]} {
		tb.Cleanup(func() { unix.Close(fd) })
	}
	return []int{v.drv[0].Kick.FD, v.mem.FD, v.mem.FD, v.call[0].FD, p[0], p[1], s[0], s[1], file, vringtest.NewEvent(tb).FD}
}

func FuzzVhostUserStream(f *testing.F) {
	v := newVM(f)
	r := v.mem.Regions()
	mem := Message(MsgSetMemTable, 0, memTable(2, r[0], r[1]))
	a := v.addr(0)
	addr := u32s(0, 1)
	for _, x := range []uint64{a.Desc, a.Used, a.Avail, a.Log} {
		addr = append(addr, u64(x)...)
	}
	ring := [][]byte{
		chunk(2, 1, mem),
		chunk(0, 0, Message(MsgSetVringNum, 0, u32s(0, 64))),
		chunk(0, 0, Message(MsgSetVringBase, 0, u32s(0, 3))),
		chunk(0, 0, Message(MsgSetVringAddr, NeedReply, addr)),
		chunk(1, 0, Message(MsgSetVringKick, NeedReply, u64(0))),
		chunk(1, 3, Message(MsgSetVringCall, 0, u64(0))),
		chunk(1, 9, Message(MsgSetVringErr, 0, u64(0))),
		chunk(0, 0, Message(MsgSetVringEnable, 0, u32s(0, 1))),
	}
	seed := func(begin byte, chunks ...[]byte) {
		p := []byte{begin}
		for _, c := range chunks {
			p = append(p, c...)
		}
		f.Add(p)
	}
	seed(fuzzSession, ring...)
	seed(fuzzRunning, ring...)
	seed(fuzzRaw,
		chunk(0, 0, Message(MsgSetProtocolFeatures, 0, u64(ProtocolFReplyAck|ProtocolFConfig))),
		chunk(0, 0, Message(MsgSetFeatures, NeedReply, u64(ringBits))),
		chunk(0, 0, Message(MsgGetConfig, 0, append(u32s(0, 12, 0), make([]byte, 12)...))))
	seed(fuzzRunning,
		chunk(1, 1, Message(MsgSetLogBase, 0, append(u64(4096), u64(0)...))),
		chunk(0, 0, Message(MsgSetFeatures, NeedReply, u64(ringBits|VhostUserFProtocolFeatures|VhostFLogAll))),
		chunk(1, 1, Message(MsgAddMemReg, NeedReply, append(make([]byte, 8), memTable(1, r[0])[8:]...))),
		chunk(1, 1, Message(MsgRemMemReg, NeedReply, append(make([]byte, 8), memTable(1, r[0])[8:]...))),
		chunk(0, 0, Message(MsgGetVringBase, 0, u32s(1, 0))),
		chunk(0, 0, Message(MsgResetDevice, NeedReply, nil)),
		chunk(0, 0, Message(MsgSetStatus, NeedReply, u64(0))))
	seed(fuzzRunning, chunk(1, 6, Message(MsgSetBackendReqFD, NeedReply, nil)),
		chunk(7, 4, Message(MsgSetOwner, 0, nil)), chunk(3, 0, []byte{1}))

	b := newBench(f)
	b.dev.Echo = true
	fds := fuzzFDs(f, v)
	setups := [2]RingSetup{v.setup(0, 0), v.setup(1, 0)}
	f.Fuzz(func(t *testing.T, p []byte) {
		if len(p) == 0 || len(p) > 1<<16 {
			return
		}
		b.tb, b.log = t, nil
		keepsFDs(t, func() {
			c := fuzzBegin(b, v, setups, p[0]%3)
			unix.SetNonblock(c.FD(), true)
			for p = p[1:]; len(p) > 2; {
				n, first, size := int(p[0]&7), int(p[0]>>3), min(int(p[1]), len(p)-2)
				send := make([]int, n)
				for i := range send {
					send[i] = fds[(first+i)%len(fds)]
				}
				if size > 0 {
					var oob []byte
					if n > 0 {
						oob = unix.UnixRights(send...)
					}
					unix.SendmsgN(c.FD(), p[2:2+size], oob, nil, unix.MSG_NOSIGNAL)
				}
				p = p[2+size:]
				kick(v, 1)
				b.turn()
				b.clock.Advance(time.Millisecond)
				b.srv.State()
			}
			unix.Close(c.FD())
			b.pass(50 * time.Millisecond)
			b.turn()
		})
		st := b.srv.State()
		if st.Connected || st.Regions != 0 || st.Features != 0 || b.loop.Timers().Len() != 0 || b.loop.Stats().Panics != 0 {
			t.Fatalf("left behind: %+v, %d timers, %d panics", st, b.loop.Timers().Len(), b.loop.Stats().Panics)
		}
		for i, q := range b.dev.Running {
			if q != nil || b.dev.Enabled[i] {
				t.Fatalf("device still has ring %d", i)
			}
		}
		b.dev.Take()
	})
}

func fuzzBegin(b *bench, v *vm, setups [2]RingSetup, how byte) *Frontend {
	c, err := DialFrontend(b.path)
	if err != nil {
		b.tb.Fatal(err)
	}
	b.turn()
	switch how {
	case fuzzSession:
		b.do(func() error { _, _, err := c.Negotiate(^uint64(0)&^VhostFLogAll, allProtocol); return err })
	case fuzzRunning:
		b.do(func() error { _, _, err := c.Negotiate(^uint64(0)&^VhostFLogAll, allProtocol); return err },
			func() error { return c.SetMemTable(v.mem.Regions()) })
		for i := range 2 {
			b.do(func() error { return c.StartRing(i, setups[i]) }, func() error { return c.SetVringEnable(i, true) })
		}
	}
	return c
}
