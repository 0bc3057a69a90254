package vhostuser_test

// The vhost-user part (M) of the catalogue of hostile and faulty inputs. After
// every refusal the rings that ran go on, and after every closed connection the
// next frontend is served.

import (
	"encoding/binary"
	"fmt"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

// shape is what the specification says about a request, written down a second
// time and from the specification.
type shape struct {
	id      Request
	size    int
	fds     int  // -1: one or, with the flag that says so, none
	replies bool // has a reply of its own
}

var shapes = []shape{
	{1, 0, 0, true}, {2, 8, 0, false}, {3, 0, 0, false}, {4, 0, 0, false}, {5, 8 + 32, 1, false},
	{6, 16, 1, true}, {8, 8, 0, false}, {9, 40, 0, false}, {10, 8, 0, false}, {11, 8, 0, true},
	{12, 8, -1, false}, {13, 8, -1, false}, {14, 8, -1, false}, {15, 0, 0, true}, {16, 8, 0, false},
	{17, 0, 0, true}, {18, 8, 0, false}, {19, 8, 0, false}, {20, 8, 0, false}, {21, 0, 1, false},
	{24, 12 + 4, 0, true}, {25, 12 + 4, 0, false}, {34, 0, 0, false}, {36, 0, 0, true}, {37, 40, 1, false},
	{38, 40, 0, false}, {39, 8, 0, false}, {40, 0, 0, true},
}

func u64(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
func u32s(v ...uint32) (p []byte) {
	for _, v := range v {
		p = binary.NativeEndian.AppendUint32(p, v)
	}
	return p
}

// msg is a message without NEED_REPLY.
func msg(r Request, payload []byte) []byte { return Message(r, 0, payload) }

func TestCatalogue(t *testing.T) {
	for _, c := range []struct {
		name string
		test func(t *testing.T)
	}{
		{"M1 pieces and stalls", testM1}, {"M2 framing", testM2}, {"M3 unknown request", testM3},
		{"M4 size", testM4}, {"M5 descriptors", testM5}, {"M6 ring index", testM6}, {"M7 features", testM7},
		{"M8 order", testM8}, {"M9 memory table", testM9}, {"M10 region larger than its file", testM10},
		{"M11 truncated memory", testM11}, {"M12 memory of other kinds", testM12},
		{"M13 new table while rings run", testLateMemTable}, {"M14 regions", testM14}, {"M15 storms", testM15},
		{"M16 log", testM16}, {"M17 inflight", testM17}, {"M18 event descriptors", testM18},
		{"M19 GET_VRING_BASE", testM19}, {"M20 enable storms", testM20}, {"M22 second frontend", testM22},
		{"M23 silence", testM23}, {"M24 replies not read", testM24}, {"M28 config", testM28}, {"M29 device state", testM29},
		{"R18 ring size", testR18}, {"R19 ring addresses", testR19}, {"R21 kicks", testR21}, {"R24 drained kick", testR24},
	} {
		t.Run(c.name, c.test)
	}
}

func testM1(t *testing.T) {
	get := msg(MsgGetFeatures, nil)
	set := msg(MsgSetOwner, nil)
	set2 := msg(MsgSetVringNum, u32s(0, 64))
	t.Run("byte by byte", func(t *testing.T) {
		b := newBench(t)
		f := b.dial()
		for _, c := range append(append(set, set2...), get...) {
			f.Raw([]byte{c})
			b.turn()
		}
		if h, _, err := f.ReadReply(); err != nil || h.Request != MsgGetFeatures {
			t.Errorf("reply %v, %v", h, err)
		}
	})
	t.Run("many at once", func(t *testing.T) {
		b := newBench(t)
		f := b.dial()
		var p []byte
		for range 100 {
			p = append(append(p, set2...), get...)
		}
		f.Raw(p)
		b.turn()
		for i := range 100 {
			if h, _, err := f.ReadReply(); err != nil || h.Request != MsgGetFeatures {
				t.Fatalf("reply %d: %v, %v", i, h, err)
			}
		}
	})
	for _, n := range []int{1, 11, 12, 13, 19} {
		t.Run(fmt.Sprintf("stall after %d bytes", n), func(t *testing.T) {
			b := newBench(t)
			f := b.dial()
			f.Raw(set2[:n])
			b.turn()
			b.pass(4900 * time.Millisecond)
			if !b.srv.State().Connected {
				t.Fatal("closed too early")
			}
			b.pass(200 * time.Millisecond)
			b.closed(func() error { return nil })
		})
	}
	t.Run("dripping", func(t *testing.T) {
		b := newBench(t)
		f := b.dial()
		for _, c := range set2[:8] {
			f.Raw([]byte{c})
			b.turn()
			b.pass(time.Second)
		}
		if b.srv.State().Connected {
			t.Errorf("a byte a second is enough to stay")
		}
	})
}

func testM2(t *testing.T) {
	for name, h := range map[string]Header{
		"version 0":     {MsgGetFeatures, 0, 0},
		"version 2":     {MsgGetFeatures, 2, 0},
		"version 3":     {MsgGetFeatures, 3, 0},
		"reply":         {MsgGetFeatures, 1 | 4, 0},
		"reserved":      {MsgGetFeatures, 1 | 16, 0},
		"all flags":     {MsgGetFeatures, 0xffffffff, 0},
		"4097 bytes":    {MsgSetFeatures, 1, 4097},
		"2^31 bytes":    {MsgSetFeatures, 1, 1 << 31},
		"2^32-1 bytes":  {MsgSetFeatures, 1, 1<<32 - 1},
		"need no reply": {MsgGetFeatures, 1 | 8 | 4, 0},
	} {
		t.Run(name, func(t *testing.T) {
			b := newBench(t)
			f := b.session()
			b.closed(func() error { return f.Raw(h.Append(nil)) })
			b.session()
		})
	}
}

func testM3(t *testing.T) {
	known := map[Request]bool{MsgSetLogFD: true}
	for _, s := range shapes {
		known[s.id] = true
	}
	b := newBench(t)
	f, v := b.running()
	for id := Request(0); id < 50; id++ {
		if !known[id] {
			b.nack(func() error { return f.Send(id, u64(0)) })
		}
	}
	for _, id := range []Request{1000, 1<<16 + 1, 1<<31 + 1, 1<<32 - 1} {
		b.nack(func() error { return f.Send(id, nil) })
	}
	b.echo(v, 3)
	b.closed(func() error { return f.Raw(msg(22, make([]byte, 32))) })
}

func testM4(t *testing.T) {
	for _, s := range shapes {
		t.Run(s.id.String(), func(t *testing.T) {
			b := newBench(t)
			fd := vringtest.NewEvent(t).FD
			var fds []int
			if s.fds > 0 {
				fds = append(fds, fd)
			}
			for _, n := range []int{0, s.size - 1, s.size + 1, s.size + 8, 300, 4096} {
				if n < 0 || n == s.size || n == 8 && s.id == MsgSetBackendReqFD { // some send a zero
					continue
				}
				f := b.session()
				if s.replies {
					b.closed(func() error { return f.Raw(Message(s.id, NeedReply, make([]byte, n)), fds...) })
					f = b.session()
				} else {
					b.nack(func() error { return f.Send(s.id, make([]byte, n), fds...) })
				}
				switch { // a table or config of another size may be one of another length
				case s.id == MsgSetMemTable && (n-8)%32 == 0:
				case s.id == MsgGetConfig || s.id == MsgSetConfig:
				default:
					b.closed(func() error { return f.Raw(msg(s.id, make([]byte, n)), fds...) })
				}
				f.Close()
				b.turn()
			}
		})
	}
}

func testM5(t *testing.T) {
	b := newBench(t)
	fds := make([]int, 253) // as many as one message carries
	for i := range fds {
		fds[i] = vringtest.NewEvent(t).FD
	}
	for _, s := range shapes {
		counts := []int{1, 2, 8, 9, 40, 253}
		switch {
		case s.fds == 1:
			counts = []int{0, 2, 8, 9, 40, 253}
		case s.fds == -1:
			counts = counts[1:]
		case s.id == MsgRemMemReg:
			counts = counts[1:] // one is tolerated, some frontends send it
		}
		for _, n := range counts {
			t.Run(fmt.Sprintf("%v with %d", s.id, n), func(t *testing.T) {
				if s.id == MsgSetMemTable && n <= 8 {
					t.Skip("a matter of the number of regions, see M9")
				}
				keepsFDs(t, func() {
					f := b.session()
					b.closed(func() error { return f.Raw(msg(s.id, make([]byte, s.size)), fds[:n]...) })
					f.Close()
				})
			})
		}
	}
	t.Run("unknown request with descriptors", func(t *testing.T) {
		keepsFDs(t, func() {
			f := b.session()
			b.closed(func() error { return f.Raw(Message(1000, NeedReply, nil), fds[:2]...) })
			f.Close()
		})
	})
	t.Run("descriptors with the payload", func(t *testing.T) {
		// Sent apart from the header, they still belong to the message.
		f := b.session()
		f.NeedReply = true
		m := Message(MsgSetVringCall, NeedReply, u64(0))
		f.Raw(m[:12])
		b.turn()
		b.do(func() error { return f.Raw(m[12:], fds[0]) })
		if _, p, err := f.ReadReply(); err != nil || binary.NativeEndian.Uint64(p) != 0 {
			t.Errorf("reply %x, %v", p, err)
		}
		f.Close()
		b.turn()
	})
	t.Run("one with every byte", func(t *testing.T) {
		keepsFDs(t, func() {
			f := b.session()
			m := msg(MsgSetMemTable, make([]byte, 100))
			for i := range 9 { // one too many, long before the message ends
				f.Raw(m[i:i+1], fds[i])
				b.turn()
			}
			b.closed(func() error { return nil })
			f.Close()
		})
	})
	t.Run("next message's are not mixed up", func(t *testing.T) {
		f, v := b.running()
		// Two messages in one write, the descriptor for the second in the next.
		f.Raw(append(msg(MsgSetOwner, nil), msg(MsgSetOwner, nil)...))
		f.Raw(msg(MsgSetVringCall, u64(0)), v.call[0].FD)
		f.Raw(msg(MsgSetOwner, nil))
		b.turn()
		b.echo(v, 2)
	})
}

func testM6(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	fd := v.call[0].FD
	for _, i := range []uint32{4, 5, 255, 256, 257, 1 << 16, 1<<16 + 1, 1<<24 + 1, 1 << 31, 1<<32 - 1} {
		a := v.addr(0)
		a.Index = i
		b.nack(func() error { return f.Send(MsgSetVringNum, u32s(i, 64)) })
		b.nack(func() error { return f.Send(MsgSetVringBase, u32s(i, 0)) })
		b.nack(func() error { return f.Send(MsgSetVringEnable, u32s(i, 0)) })
		b.nack(func() error { return f.SetVringAddr(a) })
		for _, r := range []Request{MsgSetVringKick, MsgSetVringCall, MsgSetVringErr} {
			v := uint64(i)
			if i&(1<<8) == 0 {
				b.nack(func() error { return f.Send(r, u64(v), fd) })
			}
			b.nack(func() error { return f.Send(r, u64(v|1<<8|1<<40)) })
			b.nack(func() error { return f.Send(r, u64(v<<32)) }) // low half 0 is ring 0
		}
	}
	for _, r := range []Request{MsgSetVringKick, MsgSetVringCall, MsgSetVringErr} {
		b.nack(func() error { return f.Send(r, u64(1|1<<8), fd) })
		b.nack(func() error { return f.Send(r, u64(1)) })
	}
	b.nack(func() error { return f.Send(MsgSetVringEnable, u32s(0, 2)) })
	b.nack(func() error { return f.Send(MsgSetVringEnable, u32s(0, 1<<31)) })
	b.nack(func() error { return f.Send(MsgSetVringBase, u32s(2, 1<<16)) })
	b.echo(v, 3)
	for _, i := range []uint32{4, 256, 1 << 16, 1<<32 - 1} {
		b.closed(func() error { return f.Raw(msg(MsgGetVringBase, u32s(i, 0))) })
		f = b.session()
	}
}

func testM7(t *testing.T) {
	b := newBench(t)
	f := b.session()
	b.nack(func() error { return f.SetFeatures(FRingPacked) })
	b.nack(func() error { return f.SetFeatures(1 << 63) })
	b.nack(func() error { return f.SetProtocolFeatures(ProtocolFPagefault) })
	b.nack(func() error { return f.SetProtocolFeatures(ProtocolFInflightShmfd) })
	b.nack(func() error { return f.SetProtocolFeatures(1 << 63) })
	f.Close()
	b.turn()
	f, v := b.running()
	st := b.srv.State()
	b.dev.Take()
	b.nack(func() error { return f.SetFeatures(st.Features &^ RingFEventIdx) })
	b.nack(func() error { return f.SetProtocolFeatures(st.ProtocolFeatures &^ ProtocolFMQ) })
	b.do(
		func() error { return f.SetFeatures(st.Features | VhostFLogAll) },
		func() error { return f.SetFeatures(st.Features) },
		func() error { return f.SetProtocolFeatures(st.ProtocolFeatures) },
	)
	b.calls()
	if got := b.srv.State(); got.Features != st.Features || got.ProtocolFeatures != st.ProtocolFeatures {
		t.Errorf("features changed: %#x %#x", got.Features, got.ProtocolFeatures)
	}
	b.echo(v, 3)
	t.Run("not offered by the device", func(t *testing.T) {
		b := newBench(t)
		b.dev.ProtocolBits = 0
		f := b.session()
		b.nack(func() error { return f.SetProtocolFeatures(ProtocolFMQ) })
		for _, r := range []Request{MsgSendRARP, MsgNetSetMTU} {
			b.nack(func() error { return f.Send(r, u64(1500)) })
		}
	})
}

func testM8(t *testing.T) {
	b, v := newBench(t), newVM(t)
	f := b.dial()
	b.do(
		func() error { return f.SetProtocolFeatures(ProtocolFReplyAck) },
		func() error { return f.SetFeatures(ringBits) },
		func() error { return f.SetMemTable(v.mem.Regions()) },
		func() error { return f.StartRing(0, v.setup(0, 0)) },
		func() error { return f.StartRing(1, v.setup(1, 0)) },
	)
	f.NeedReply = true
	b.do(func() error { return f.SetOwner() }, func() error { return f.SetOwner() })
	b.echo(v, 3)
	b.dev.Take()
	b.do(func() error { return f.ResetOwner() })
	b.calls("Enable(0, false)", "Enable(1, false)", "Enable(2, false)", "Enable(3, false)")
	for i := range 2 {
		b.do(func() error { return f.SetVringEnable(i, true) })
	}
	b.echo(v, 3) // nothing but enabling was lost
	t.Run("addresses before size and memory", func(t *testing.T) {
		b, v := newBench(t), newVM(t)
		f := b.session()
		b.do(func() error { return f.SetVringKick(0, v.drv[0].Kick.FD) },
			func() error { return f.SetVringAddr(v.addr(0)) },
			func() error { return f.SetVringNum(0, 64) })
		b.phase(0, Waiting)
		b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
		b.phase(0, Running)
	})
}

// memTable is a SET_MEM_TABLE as the test wants it, right or wrong.
func memTable(n uint32, rs ...guestmem.Region) []byte {
	p := u32s(n, 0)
	for _, r := range rs {
		for _, v := range []uint64{r.GPA, r.Size, r.UVA, r.MmapOffset} {
			p = append(p, u64(v)...)
		}
	}
	return p
}

func testM9(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	r := v.mem.Regions()[0]
	at := func(gpa, uva, off, size uint64) guestmem.Region {
		return guestmem.Region{GPA: gpa, UVA: uva, MmapOffset: off, Size: size}
	}
	other := at(r.GPA+1<<40, r.UVA+1<<40, 0, 4096)
	for _, c := range []struct {
		name string
		p    []byte
		fds  int
	}{
		{"no regions", memTable(0), 0},
		{"no regions with a descriptor", memTable(0), 1},
		{"9 regions", memTable(9, r, r, r, r, r, r, r, r), 8},
		{"2^32-1 regions", memTable(1<<32-1, r), 1},
		{"more regions than bytes", memTable(2, r), 2},
		{"more bytes than regions", memTable(1, r, other), 1},
		{"more descriptors", memTable(1, r), 2},
		{"fewer descriptors", memTable(2, r, other), 1},
		{"size 0", memTable(1, at(r.GPA, r.UVA, 0, 0)), 1},
		{"guest address overflow", memTable(1, at(^uint64(0)-100, r.UVA, 0, 4096)), 1},
		{"user address overflow", memTable(1, at(r.GPA, ^uint64(0)-100, 0, 4096)), 1},
		{"offset overflow", memTable(1, at(r.GPA, r.UVA, ^uint64(0)-100, 4096)), 1},
		{"size overflow", memTable(1, at(0, 0, 0, ^uint64(0))), 1},
		{"guest addresses overlap", memTable(2, r, at(r.GPA+r.Size-1, other.UVA, 0, 4096)), 2},
		{"user addresses overlap", memTable(2, r, at(other.GPA, r.UVA+r.Size-1, 0, 4096)), 2},
		{"the same region twice", memTable(2, r, r), 2},
	} {
		t.Run(c.name, func(t *testing.T) {
			b.tb = t
			keepsFDs(t, func() {
				fds := make([]int, c.fds)
				for i := range fds {
					fds[i] = v.mem.FD
				}
				b.nack(func() error { return f.Send(MsgSetMemTable, c.p, fds...) })
			})
			if n := b.srv.State().Regions; n != 2 {
				t.Errorf("%d regions left", n)
			}
			b.echo(v, 2)
		})
	}
	b.tb = t
}

func testM10(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	r := v.mem.Regions()[1]
	for _, size := range []uint64{1 << 30, 1 << 40, r.Size + 3*4096} {
		r.Size = size
		b.nack(func() error { return f.SetMemTable([]guestmem.Region{r}) })
	}
	b.echo(v, 3)
}

func testM12(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	r := v.mem.Regions()[0]
	r.MmapOffset, r.Size = 0, 4096
	sock, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(sock[0])
	defer unix.Close(sock[1])
	file := t.TempDir() + "/file"
	rw := openFile(t, file, unix.O_RDWR|unix.O_CREAT)
	unix.Ftruncate(rw, 4096)
	for name, fd := range map[string]int{
		"directory": openFile(t, "/", unix.O_RDONLY),
		"socket":    sock[0],
		"/dev/zero": openFile(t, "/dev/zero", unix.O_RDWR),
		"eventfd":   v.call[0].FD,
		"read-only": openFile(t, file, unix.O_RDONLY),
	} {
		t.Run(name, func(t *testing.T) {
			r.FD = fd
			keepsFDs(t, func() {
				b.nack(func() error { return f.SetMemTable([]guestmem.Region{r}) })
				more := r
				more.GPA, more.UVA = 1<<50, 1<<46
				b.nack(func() error { return f.AddMemReg(more) })
			})
		})
	}
	b.echo(v, 3)
	r.FD, r.GPA, r.UVA = rw, 1<<50, 1<<46
	b.do(func() error { return f.AddMemReg(r) }) // a regular file will do
}

func testM14(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	r := v.mem.Regions()[1]
	b.nack(func() error { return f.AddMemReg(r) })
	for _, change := range []func(*guestmem.Region){
		func(r *guestmem.Region) { r.GPA++ }, func(r *guestmem.Region) { r.UVA++ }, func(r *guestmem.Region) { r.Size-- },
	} {
		o := r
		change(&o)
		b.nack(func() error { return f.RemMemReg(o) })
	}
	b.echo(v, 2)
	keepsFDs(t, func() { // with the descriptor that some frontends send
		b.do(func() error { return f.Send(MsgRemMemReg, append(make([]byte, 8), memTable(0, r)[8:]...), r.FD) })
	})
	b.nack(func() error { return f.RemMemReg(r) })
	b.do(func() error { return f.AddMemReg(r) })
	b.echo(v, 2)
	// The region of the rings: see TestRingOutsideMemory.
}

func testM15(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	maps := countMappings(t, "vringtest")
	keepsFDs(t, func() {
		for i := range 300 {
			b.do(
				func() error { return f.SetMemTable(v.mem.Regions()) },
				func() error { return f.SetVringNum(i&1, 64) },
				func() error { return f.SetVringAddr(v.addr(i & 1)) },
				func() error { return f.SetVringKick(i&1, v.drv[i&1].Kick.FD) },
				func() error { return f.SetVringCall(i&1, v.call[i&1].FD) },
				func() error { return f.SetVringErr(i&1, v.errs[i&1].FD) },
			)
		}
	})
	if n := countMappings(t, "vringtest"); n != maps {
		t.Errorf("%d mappings before, %d after", maps, n)
	}
	if n := b.srv.State().Counters.Messages[MsgSetMemTable]; n != 301 {
		t.Errorf("%d memory tables counted", n)
	}
	b.echo(v, 3)
}

func testM16(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	need := (v.mem.End()/guestmem.PageSize + 7) / 8
	fd, _ := newLog(t, need+4096)
	for _, c := range []struct{ size, off uint64 }{
		{0, 0}, {8, 0}, {need - 1, 0}, {need, ^uint64(0) - 3}, {^uint64(0), 0}, {^uint64(0) - 3, 4}, {need + 4096, 4096}, {1 << 40, 0},
	} {
		b.nack(func() error { return f.SetLogBase(fd, c.size, c.off) })
	}
	b.nack(func() error { return f.SetLogFD(fd) }) // a file
	b.echo(v, 2)
	b.do(func() error { return f.SetLogBase(fd, need, 4096) })
	// Marks beyond the log: memory added behind it is served, not logged.
	acked := b.srv.State().Features
	b.do(func() error { return f.SetFeatures(acked | VhostFLogAll) })
	a := v.addr(0)
	a.Flags, a.Log = 1, ^uint64(0)-100
	b.do(func() error { return f.SetVringAddr(a) })
	b.echo(v, 2)
	a.Flags = 2
	b.nack(func() error { return f.SetVringAddr(a) })
	b.closed(func() error { return f.Raw(msg(MsgSetLogBase, make([]byte, 16))) }) // no descriptor
}

func testM17(t *testing.T) {
	b := newBench(t)
	f := b.session()
	for _, p := range [][]byte{make([]byte, 24), append(u64(1<<60), make([]byte, 16)...)} {
		b.nack(func() error { return f.Send(MsgGetInflightFD, p) })
		b.nack(func() error { return f.Send(MsgSetInflightFD, p) })
	}
}

func testM29(t *testing.T) {
	b := newBench(t)
	f := b.dial()
	var p uint64
	b.do(func() (err error) { p, err = f.GetProtocolFeatures(); return })
	if p&(ProtocolFDeviceState|ProtocolFPagefault|ProtocolFInflightShmfd|ProtocolFShmemMap) != 0 {
		t.Errorf("offered: %s", ProtocolFeatureNames(p))
	}
	f.Close()
	b.turn()
	f = b.session()
	b.nack(func() error { return f.Send(MsgSetDeviceStateFD, u64(0)) })
}

func testM18(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	var pipe [2]int
	if err := unix.Pipe2(pipe[:], unix.O_CLOEXEC); err != nil {
		t.Fatal(err)
	}
	defer unix.Close(pipe[0])
	defer unix.Close(pipe[1])
	epfd, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(epfd)
	listener, err := unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(listener)
	unix.Bind(listener, &unix.SockaddrUnix{Name: t.TempDir() + "/l"})
	unix.Listen(listener, 1)
	udp, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(udp)
	for name, fd := range map[string]int{
		"regular file": openFile(t, t.TempDir()+"/f", unix.O_RDWR|unix.O_CREAT),
		"memory":       v.mem.FD,
		"directory":    openFile(t, "/", unix.O_RDONLY),
		"/dev/zero":    openFile(t, "/dev/zero", unix.O_RDWR),
		"listener":     listener,
		"datagrams":    udp,
		"epoll":        epfd,
	} {
		t.Run(name, func(t *testing.T) {
			keepsFDs(t, func() {
				b.nack(func() error { return f.SetVringKick(0, fd) })
				b.nack(func() error { return f.SetVringCall(0, fd) })
				b.nack(func() error { return f.SetVringErr(0, fd) })
			})
		})
	}
	b.nack(func() error { return f.SetVringKick(0, f.FD()) }) // the socket itself
	b.nack(func() error { return f.SetVringKick(0, pipe[1]) })
	b.nack(func() error { return f.SetVringCall(0, pipe[0]) })
	b.echo(v, 3)

	t.Run("blocking and saturated call", func(t *testing.T) {
		e, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
		if err != nil {
			t.Fatal(err)
		}
		defer unix.Close(e)
		unix.Write(e, []byte{0xfe, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff})
		b.do(func() error { return f.SetVringCall(0, e) })
		v.drv[0].Q.ArmCall()
		b.echo(v, 3)
	})
	t.Run("kick pipe that its writer leaves", func(t *testing.T) {
		var p [2]int
		unix.Pipe2(p[:], unix.O_CLOEXEC)
		defer unix.Close(p[0])
		b.do(func() error { return f.SetVringKick(1, p[0]) })
		unix.Write(p[1], make([]byte, 3000))
		b.turn()
		unix.Close(p[1])
		b.turn() // fails if it spins
		b.echo(v, 3)
	})
}

func testM19(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	base := func(i int) (n uint16) {
		b.do(func() (err error) { n, err = f.GetVringBase(i); return })
		return n
	}
	if n := base(3); n != 0 {
		t.Errorf("never set up: base %d", n)
	}
	b.do(func() error { return f.SetVringBase(3, 77) })
	if n := base(3); n != 77 {
		t.Errorf("never started: base %d", n)
	}
	b.echo(v, 5)
	b.dev.Take()
	for range 3 {
		if n := base(1); n != 5 {
			t.Errorf("base %d, want 5", n)
		}
	}
	b.calls("Stop(1)")
	kick(v, 1) // the kick descriptor is not ours any more
	b.turn()
	b.phase(1, Stopped)
}

func testM20(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.echo(v, 1)
	b.dev.Take()
	var p []byte
	for i := range 1000 {
		p = append(p, msg(MsgSetVringEnable, u32s(uint32(i>>1&1), uint32(i&1)))...)
	}
	b.do(func() error { return f.Raw(p) })
	if n := len(b.dev.Take()); n != 1000 {
		t.Errorf("device told %d times", n)
	}
	b.do(func() error { return f.SetVringEnable(0, true) }, func() error { return f.SetVringEnable(1, true) })
	b.echo(v, 1)
	b.do(func() error { return f.SetVringEnable(0, false) })
	v.drv[0].Post(64)
	v.drv[1].Send([]byte("x"))
	b.turn()
	if n := len(v.drv[0].Reap()); n != 0 {
		t.Errorf("delivered after the reply")
	}
}

func testM22(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	keepsFDs(t, func() {
		for range 20 {
			g, err := DialFrontend(b.path)
			if err != nil {
				t.Fatal(err)
			}
			b.turn()
			if _, _, err := g.ReadReply(); err != ErrClosed {
				t.Fatalf("second frontend: %v", err)
			}
			g.Close()
		}
	})
	if n := b.srv.State().Counters.Refused; n != 20 {
		t.Errorf("%d refused", n)
	}
	b.echo(v, 3)
	t.Run("the first has just left", func(t *testing.T) {
		for range 100 { // more than one turn's worth
			f.Raw(msg(MsgSetOwner, nil))
		}
		f.Close()
		g, err := DialFrontend(b.path)
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		b.turn()
		b.do(func() error { _, err := g.GetFeatures(); return err })
	})
}

func testM23(t *testing.T) {
	b := newBench(t)
	f := b.dial()
	b.pass(60 * time.Second)
	if !b.srv.State().Connected || b.loop.Timers().Len() != 0 {
		t.Errorf("connected %v, %d timers", b.srv.State().Connected, b.loop.Timers().Len())
	}
	b.do(func() error { _, err := f.GetFeatures(); return err })
}

func testM24(t *testing.T) {
	b := newBench(t)
	f := b.session()
	unix.SetNonblock(f.FD(), true)
	var batch []byte
	for range 64 {
		batch = append(batch, msg(MsgGetConfig, append(u32s(0, 12, 0), make([]byte, 12)...))...)
	}
	sent := 0
	for { // until neither end takes any more
		n, err := unix.SendmsgN(f.FD(), batch, nil, nil, unix.MSG_NOSIGNAL)
		b.turn()
		if err != nil {
			break
		}
		if sent += n; sent > 64<<20 {
			t.Fatal("endless room for replies")
		}
	}
	if !b.srv.State().Connected {
		t.Fatal("closed at once")
	}
	b.pass(4900 * time.Millisecond)
	if !b.srv.State().Connected {
		t.Fatal("closed too early")
	}
	b.pass(200 * time.Millisecond)
	if b.srv.State().Connected {
		t.Errorf("still connected")
	}
	t.Run("late reader", func(t *testing.T) {
		f := b.session()
		unix.SetNonblock(f.FD(), true)
		for {
			_, err := unix.SendmsgN(f.FD(), batch, nil, nil, unix.MSG_NOSIGNAL)
			b.turn()
			if err != nil {
				break
			}
		}
		b.pass(3 * time.Second)
		got := 0
		for idle := 0; idle < 3; idle++ {
			var p [65536]byte
			for {
				n, err := unix.Read(f.FD(), p[:])
				if err != nil || n == 0 {
					break
				}
				got, idle = got+n, 0
			}
			b.turn()
		}
		if got%36 != 0 || got == 0 {
			t.Errorf("%d bytes of replies of 36 bytes", got)
		}
		b.pass(20 * time.Second)
		if got := b.srv.State(); !got.Connected && got.Counters.LastClose != "message stalled after 28 bytes" {
			// Our last write may have been cut short in the middle of a message.
			t.Logf("closed: %s", got.Counters.LastClose)
		}
	})
}

func testM28(t *testing.T) {
	b := newBench(t)
	f := b.session()
	b.dev.Take()
	get := func(off, size uint32, n int) error {
		_, err := f.Ask(MsgGetConfig, append(u32s(off, size, 0), make([]byte, n)...))
		return err
	}
	for _, c := range []struct{ off, n int }{{0, 13}, {12, 1}, {1 << 20, 4}, {1<<32 - 1, 1}, {250, 12}} {
		b.nack(func() error { _, err := f.GetConfig(c.off, c.n); return err })
		b.nack(func() error { return f.SetConfig(c.off, 0, make([]byte, c.n)) })
	}
	// Nothing that is outside every config space gets as far as the device.
	b.calls("WriteConfig(0, 00000000000000000000000000)", "WriteConfig(12, 00)")
	b.nack(func() error { return f.SetConfig(0, 2, make([]byte, 4)) })
	b.nack(func() error { return f.Send(MsgSetConfig, append(u32s(0, 5, 0), make([]byte, 4)...)) })
	b.nack(func() error { return f.Send(MsgSetConfig, append(u32s(0, 1<<32-12, 0), make([]byte, 4)...)) })
	b.do(func() error { _, err := f.GetConfig(0, 12); return err })
	b.closed(func() error { return get(0, 1<<32-1, 4) })
}

func testR18(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	for _, n := range []uint32{0, 3, 63, 65, 1<<15 + 1, 1 << 16, 1 << 31, 1<<32 - 1} {
		b.nack(func() error { return f.SetVringNum(2, n) })
		b.nack(func() error { return f.SetVringNum(0, n) })
	}
	b.nack(func() error { return f.SetVringNum(0, 128) }) // while running
	b.nack(func() error { return f.SetVringBase(0, 1) })
	if n := b.srv.State().Rings[0].Size; n != 64 {
		t.Errorf("size %d", n)
	}
	b.echo(v, 70)
	b.do(func() error { return f.SetVringNum(2, 1<<15) }, func() error { return f.SetVringNum(2, 1) })
}

func testR19(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	good := v.addr(0)
	end := v.mem.UVA(v.mem.End()-1) + 1
	for name, change := range map[string]func(*VringAddr){
		"descriptors misaligned": func(a *VringAddr) { a.Desc += 8 },
		"avail misaligned":       func(a *VringAddr) { a.Avail++ },
		"used misaligned":        func(a *VringAddr) { a.Used += 2 },
		"descriptors outside":    func(a *VringAddr) { a.Desc = 0 },
		"avail outside":          func(a *VringAddr) { a.Avail = 0x1000 },
		"used outside":           func(a *VringAddr) { a.Used = ^uint64(0) &^ 3 },
		"descriptors stick out":  func(a *VringAddr) { a.Desc = end - 16*64 + 16 },
		"avail sticks out":       func(a *VringAddr) { a.Avail = end - 6 - 2*64 + 2 },
		"used sticks out":        func(a *VringAddr) { a.Used = end - 6 - 8*64 + 6 - 2 },
	} {
		t.Run(name, func(t *testing.T) {
			a := good
			change(&a)
			b.nack(func() error { return f.SetVringAddr(a) })
			b.echo(v, 2)
		})
	}
	t.Run("moved while running", func(t *testing.T) {
		// The same ring, elsewhere.
		old := v.ring[1]
		v.ring[1] = v.mem.NewRing(64)
		copy(v.mem.Bytes(v.ring[1].DescGPA, 1024), v.mem.Bytes(old.DescGPA, 1024))
		v.ring[1].Start(old.AvailIdx())
		v.drv[1] = v.ring[1].NewDriver(vringtest.Features{EventIdx: true, InOrder: true}, old.AvailIdx())
		b.do(func() error { return f.SetVringAddr(v.addr(1)) }, func() error { return f.SetVringKick(1, v.drv[1].Kick.FD) })
		b.echo(v, 3)
	})
	t.Run("all three overlap", func(t *testing.T) {
		a := good
		a.Used, a.Avail = a.Desc, a.Desc
		b.do(func() error { return f.SetVringAddr(a) })
		kick(v, 0)
		b.turn()
	})
}

// testR24: both rings have one eventfd, which the frontend has made blocking
// again. One kick wakes both, and the one that comes second finds it drained.
func testR24(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	fd := v.drv[0].Kick.FD
	b.do(func() error { return f.SetVringKick(0, fd) }, func() error { return f.SetVringKick(1, fd) })
	if err := unix.SetNonblock(fd, false); err != nil {
		t.Fatal(err)
	}
	b.dev.Kicks[0], b.dev.Kicks[1] = 0, 0
	kick(v, 0)
	b.turn()
	if b.dev.Kicks[0] != 1 || b.dev.Kicks[1] != 1 {
		t.Errorf("served %d and %d times", b.dev.Kicks[0], b.dev.Kicks[1])
	}
}

func testR21(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.do(func() error { return f.SetVringEnable(0, false) })
	b.dev.Kicks[1] = 0
	for range 1000 {
		kick(v, 1)
	}
	b.turn()
	if n := b.dev.Kicks[1]; n != 1 {
		t.Errorf("a thousand kicks are served %d times", n)
	}
}
