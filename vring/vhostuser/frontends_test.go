package vhostuser_test

// What the frontends in the field do, each in its own order and with its own
// habits, as observed on the wire.

import (
	"testing"
	"time"

	"golang.org/x/sys/unix"

	. "guestwire/vring/vhostuser"

	"guestwire/vring/guestmem"
	"guestwire/vring/vringtest"
)

const ringBits = FVersion1 | RingFEventIdx | RingFIndirectDesc | FInOrder

// qemuProtocol is what QEMU 11.1 acknowledges for a network device, less the
// guest addresses.
const qemuProtocol = ProtocolFMQ | ProtocolFLogShmfd | ProtocolFReplyAck | ProtocolFBackendReq | ProtocolFResetDevice | ProtocolFStatus

// qemu connects as QEMU 11.1 does while the machine is being built, up to the
// point where the guest's driver is ready. ack: QEMU itself asks for few
// acknowledgements, the test for all it can get.
func (b *bench) qemu(v *vm, protocol uint64) *Frontend {
	b.tb.Helper()
	f := b.dial()
	b.do(
		func() error { _, err := f.GetFeatures(); return err },
		func() error { _, err := f.GetProtocolFeatures(); return err },
		func() error { return f.SetProtocolFeatures(protocol) },
		func() error { _, err := f.GetQueueNum(); return err },
	)
	f.NeedReply = protocol&ProtocolFReplyAck != 0
	b.do(
		func() error { return f.SetBackendReqFD() },
		func() error { return f.SetOwner() },
		func() error { _, err := f.GetFeatures(); return err },
	)
	for i := range 2 {
		b.do(func() error { return f.SetVringCall(i, v.call[i].FD) }, func() error { return f.SetVringErr(i, v.errs[i].FD) })
	}
	// Before the guest's driver loads, more than once.
	for range 3 {
		if protocol&ProtocolFResetDevice != 0 {
			b.do(func() error { return f.ResetDevice() })
		}
		b.do(func() error { return f.SetVringEnable(0, true) }, func() error { return f.SetVringEnable(1, true) })
	}
	return f
}

// qemuStart is what follows when the guest sets DRIVER_OK, or goes on after a
// pause.
func (b *bench) qemuStart(f *Frontend, v *vm, protocol uint64, base [2]uint16) {
	b.tb.Helper()
	b.do(func() error { return f.SetFeatures(ringBits | VhostUserFProtocolFeatures) })
	if protocol&ProtocolFStatus != 0 {
		b.do(func() error { _, err := f.GetStatus(); return err }, func() error { return f.SetStatus(0x0b) })
	}
	b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
	for i := range 2 {
		b.do(
			func() error { return f.SetVringNum(i, 64) },
			func() error { return f.SetVringBase(i, base[i]) },
			func() error { return f.SetVringAddr(v.addr(i)) },
			func() error { return f.SetVringKick(i, v.drv[i].Kick.FD) },
			func() error { return f.SetVringCall(i, v.call[i].FD) },
		)
	}
	b.do(func() error { return f.SetVringEnable(0, true) }, func() error { return f.SetVringEnable(1, true) })
	if protocol&ProtocolFStatus != 0 {
		b.do(func() error { return f.SetStatus(0x0f) })
	}
}

// qemuStop is what a pause and a reset begin with.
func (b *bench) qemuStop(f *Frontend, protocol uint64) (base [2]uint16) {
	b.tb.Helper()
	for i := range base {
		b.do(func() error { return f.SetVringEnable(i, false) })
		b.do(func() (err error) { base[i], err = f.GetVringBase(i); return })
	}
	if protocol&ProtocolFStatus != 0 {
		b.do(func() error { return f.SetStatus(0) })
	}
	return base
}

func has(list []string, s string) bool {
	for _, l := range list {
		if l == s {
			return true
		}
	}
	return false
}

func TestQEMU(t *testing.T) {
	t.Run("11.1 order of start and stop", func(t *testing.T) {
		b, v := newBench(t), newVM(t)
		f := b.qemu(v, qemuProtocol)
		b.dev.Take()
		b.qemuStart(f, v, qemuProtocol, [2]uint16{})
		b.calls("Negotiated(0x970000000)", "Start(0)", "Start(1)")
		b.echo(v, 70)
		if base := b.qemuStop(f, qemuProtocol); base != [2]uint16{70, 70} {
			t.Errorf("bases %v", base)
		}
	})
	t.Run("7.2 without RESET_DEVICE and STATUS", func(t *testing.T) {
		const old = ProtocolFMQ | ProtocolFLogShmfd | ProtocolFReplyAck
		b, v := newBench(t), newVM(t)
		f := b.dial()
		b.do(func() error { _, _, err := f.Negotiate(ringBits, old); return err })
		b.qemuStart(f, v, old, [2]uint16{})
		b.echo(v, 5)
		b.qemuStop(f, old)
		b.dev.Take()

		// The guest reboots: other rings, from 0. Nothing else tells.
		v.newRing(t, 0)
		v.newRing(t, 1)
		b.qemuStart(f, v, old, [2]uint16{})
		if calls := b.dev.Take(); !has(calls, "Reset()") {
			t.Errorf("device not told of a new guest: %q", calls)
		}
		b.echo(v, 5)
	})
	t.Run("masks interrupts by exchanging call descriptors", func(t *testing.T) {
		b := newBench(t)
		f, v := b.running()
		b.echo(v, 1)
		unmasked, masked := v.call[0], vringtest.NewEvent(t)
		b.do(func() error { return f.SetVringCall(0, masked.FD) })
		masked.Count()
		v.drv[0].Q.ArmCall()
		b.echo(v, 1)
		if masked.Count() == 0 {
			t.Errorf("no call into the new descriptor")
		}
		masked.Count()
		unmasked.Count()
		b.do(func() error { return f.SetVringCall(0, unmasked.FD) })
		if n := unmasked.Count(); n != 1 {
			t.Errorf("signalled %d times when unmasked", n)
		}
		v.drv[0].Q.ArmCall()
		b.echo(v, 1)
		if unmasked.Count() == 0 || masked.Count() != 0 {
			t.Errorf("the call went into the old descriptor")
		}
	})
	t.Run("pause and resume is no new guest", func(t *testing.T) {
		b, v := newBench(t), newVM(t)
		f := b.qemu(v, qemuProtocol)
		b.qemuStart(f, v, qemuProtocol, [2]uint16{})
		b.echo(v, 9)
		base := b.qemuStop(f, qemuProtocol)
		b.dev.Take()
		b.qemuStart(f, v, qemuProtocol, base)
		if calls := b.dev.Take(); has(calls, "Reset()") {
			t.Errorf("flows lost in a pause: %q", calls)
		}
		b.echo(v, 9)
	})
	t.Run("reboot sends RESET_DEVICE", func(t *testing.T) {
		b, v := newBench(t), newVM(t)
		f := b.qemu(v, qemuProtocol)
		b.qemuStart(f, v, qemuProtocol, [2]uint16{})
		b.echo(v, 9)
		b.qemuStop(f, qemuProtocol)
		b.dev.Take()
		b.do(func() error { return f.ResetDevice() })
		b.calls("Reset()") // disabled before
		v.newRing(t, 0)
		v.newRing(t, 1)
		b.qemuStart(f, v, qemuProtocol, [2]uint16{})
		if calls := b.dev.Take(); has(calls, "Reset()") {
			t.Errorf("reset again: %q", calls)
		}
		b.echo(v, 9)
	})
	t.Run("RESET_DEVICE keeps call and err descriptors", func(t *testing.T) {
		b, v := newBench(t), newVM(t)
		f := b.qemu(v, qemuProtocol)
		b.do(func() error { return f.ResetDevice() },
			func() error { return f.SetFeatures(ringBits | VhostUserFProtocolFeatures) },
			func() error { return f.SetMemTable(v.mem.Regions()) },
			func() error { return f.SetVringNum(1, 64) },
			func() error { return f.SetVringAddr(v.addr(1)) },
			func() error { return f.SetVringKick(1, v.drv[1].Kick.FD) })
		v.ring[1].Offer(9999)
		b.dev.OnKick = popAll
		kick(v, 1)
		b.turn()
		if v.errs[1].Count() == 0 {
			t.Errorf("err descriptor lost in the reset")
		}
	})
	t.Run("switches logging while rings run", testLogging)
	t.Run("unused pairs stay without rings", func(t *testing.T) {
		b := newBench(t)
		f, _ := b.running()
		b.do(func() error { return f.SetVringEnable(2, true) }, func() error { return f.SetVringEnable(3, false) })
		var base uint16
		b.do(func() (err error) { base, err = f.GetVringBase(2); return })
		if base != 0 {
			t.Errorf("base %d", base)
		}
	})
	t.Run("spurious kicks", func(t *testing.T) {
		b := newBench(t)
		_, v := b.running()
		for range 3 {
			kick(v, 0)
			kick(v, 1)
			b.turn()
		}
		b.echo(v, 3)
	})
	t.Run("late SET_MEM_TABLE without new addresses", testLateMemTable)
}

func TestUML(t *testing.T) {
	b := newBench(t)
	mem := vringtest.NewMemory(t, 1<<20)
	mem.Alloc(0x10, 1) // not shared, see umlRegions
	v := &vm{mem: mem}
	var pipes [2][2]int // what UML calls so: blocking ends of socket pairs
	for i := range 2 {
		v.newRing(t, i)
		var err error
		if pipes[i], err = unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0); err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { unix.Close(pipes[i][0]); unix.Close(pipes[i][1]) })
	}
	f := b.dial()
	umlBits := ringBits | VhostUserFProtocolFeatures
	// SET_OWNER comes first, and REPLY_ACK is asked for everywhere from the
	// moment it is negotiated.
	b.do(
		func() error { return f.SetOwner() },
		func() error { _, err := f.GetFeatures(); return err },
		func() error { _, err := f.GetProtocolFeatures(); return err },
		func() error {
			return f.SetProtocolFeatures(ProtocolFMQ | ProtocolFReplyAck | ProtocolFBackendReq | ProtocolFConfig)
		},
	)
	f.NeedReply = true
	bind := func() {
		t.Helper()
		b.do(
			func() error { _, err := f.GetConfig(0, 12); return err },
			func() error { return f.SetBackendReqFD() },
			func() error { return f.SetFeatures(umlBits) },
			func() error { return f.SetMemTable(umlRegions(t, mem)) },
		)
		for i := range 2 {
			b.do(
				func() error { return f.SetVringCall(i, pipes[i][1]) },
				func() error { return f.SetVringNum(i, 64) },
				func() error { return f.SetVringBase(i, 0) },
				func() error { return f.SetVringAddr(v.addr(i)) },
				func() error { return f.SetVringKick(i, v.drv[i].Kick.FD) },
				func() error { return f.SetVringEnable(i, true) },
			)
		}
	}
	bind()
	b.echo(v, 10)
	t.Run("call is an end of a socket pair", func(t *testing.T) {
		unix.SetNonblock(pipes[0][0], true)
		var p [4096]byte
		if n, err := unix.Read(pipes[0][0], p[:]); n <= 0 || err != nil {
			t.Errorf("nothing in the call socket: %d, %v", n, err)
		}
	})
	t.Run("a call that nobody reads stops nothing", func(t *testing.T) {
		unix.SetNonblock(pipes[0][1], true)
		for n := 1; n > 0; {
			n, _ = unix.Write(pipes[0][1], make([]byte, 4096))
		}
		b.echo(v, 3)
	})
	t.Run("binds its driver again after no more than ENABLE 0", func(t *testing.T) {
		b.do(func() error { return f.SetVringEnable(0, false) }, func() error { return f.SetVringEnable(1, false) })
		b.phase(0, Running)
		v.newRing(t, 0)
		v.newRing(t, 1)
		b.dev.Take()
		umlBits &^= RingFIndirectDesc
		bind()
		if calls := b.dev.Take(); !has(calls, "Reset()") || !has(calls, "Stop(0)") || !has(calls, "Stop(1)") {
			t.Errorf("device was told %q", calls)
		}
		b.echo(v, 10)
	})
	t.Run("leaves with ENABLE 0 and close", func(t *testing.T) {
		b.do(func() error { return f.SetVringEnable(0, false) }, func() error { return f.SetVringEnable(1, false) })
		b.dev.Take()
		f.Close()
		b.turn()
		b.calls("Stop(0)", "Stop(1)", "Disconnected()")
	})
}

// umlRegions is one region at an offset that is no multiple of a page.
func umlRegions(t *testing.T, m *vringtest.Memory) []guestmem.Region {
	r := m.Regions()[0]
	r.GPA, r.UVA, r.MmapOffset, r.Size = r.GPA+0x10, r.UVA+0x10, r.MmapOffset+0x10, r.Size-0x10
	if r.MmapOffset%4096 == 0 {
		t.Fatal("offset is a multiple of a page")
	}
	return []guestmem.Region{r}
}

func TestDPDK(t *testing.T) {
	const proto = ProtocolFMQ | ProtocolFReplyAck | ProtocolFStatus
	b, v := newBench(t), newVM(t)
	f := b.dial()
	b.do(
		func() error { return f.SetOwner() },
		func() error { _, err := f.GetFeatures(); return err },
		func() error { _, err := f.GetProtocolFeatures(); return err },
		func() error { return f.SetProtocolFeatures(proto) },
	)
	f.NeedReply = true
	start := func(t *testing.T) {
		t.Helper()
		var st uint64
		// The status has to read back, or virtio-user refuses to start.
		for _, s := range []uint8{0, 1, 3} {
			b.do(func() error { return f.SetStatus(s) }, func() (err error) { st, err = f.GetStatus(); return })
			if st != uint64(s) {
				t.Fatalf("status %#x reads back as %#x", s, st)
			}
		}
		for i := range 2 { // before SET_FEATURES
			b.do(func() error { return f.SetVringCall(i, v.call[i].FD) })
		}
		b.do(
			func() error { return f.SetFeatures(ringBits | VhostUserFProtocolFeatures) },
			func() error { return f.SetStatus(0x0b) },
			func() (err error) { st, err = f.GetStatus(); return },
			func() error { return f.SetMemTable(v.mem.Regions()) },
		)
		if st != 0x0b {
			t.Fatalf("FEATURES_OK does not read back: %#x", st)
		}
		for i := range 2 {
			b.do(
				func() error { return f.SetVringNum(i, 64) },
				func() error { return f.SetVringBase(i, 0) },
				func() error { return f.SetVringAddr(v.addr(i)) },
				func() error { return f.SetVringKick(i, v.drv[i].Kick.FD) },
				func() error { return f.SetVringEnable(i, true) },
			)
		}
		b.do(func() error { return f.SetStatus(0x0f) })
	}
	t.Run("calls before features, status reads back", start)
	b.echo(v, 100)
	t.Run("port stopped and started: base 0 over a used ring", func(t *testing.T) {
		for i := range 2 {
			b.do(func() error { return f.SetVringEnable(i, false) }, func() error { _, err := f.GetVringBase(i); return err })
		}
		start(t)
		b.echo(v, 100)
	})
	t.Run("FEATURES_OK after refused features", func(t *testing.T) {
		for i := range 2 {
			b.do(func() error { _, err := f.GetVringBase(i); return err })
		}
		b.nack(func() error { return f.SetFeatures(FRingPacked) })
		var st uint64
		b.do(func() error { return f.SetStatus(0x0b) }, func() (err error) { st, err = f.GetStatus(); return })
		if st != 0x03 {
			t.Errorf("status reads %#x", st)
		}
	})
}

func TestCloudHypervisor(t *testing.T) {
	const proto = ProtocolFMQ | ProtocolFConfigureMemSlots | ProtocolFReplyAck | ProtocolFLogShmfd | ProtocolFConfig
	b, v := newBench(t), newVM(t)
	connect := func(base [2]uint16) *Frontend {
		f := b.dial()
		b.do(
			func() error { return f.SetOwner() },
			func() error { _, err := f.GetFeatures(); return err },
			func() error { _, err := f.GetProtocolFeatures(); return err },
			func() error { return f.SetProtocolFeatures(proto) },
		)
		f.NeedReply = true
		b.do(
			func() error { return f.SetFeatures(ringBits | VhostUserFProtocolFeatures) },
			func() error { return f.Share(proto, v.mem.Regions()) },
		)
		for i := range 2 {
			b.do(func() error { return f.StartRing(i, v.setup(i, base[i])) }, func() error { return f.SetVringEnable(i, true) })
		}
		return f
	}
	f := connect([2]uint16{})
	b.echo(v, 10)
	t.Run("memory hot-plug", func(t *testing.T) {
		more := vringtest.NewMemory(t, 1<<16)
		r := more.Regions()[0]
		r.GPA, r.UVA = v.mem.End()+1<<30, r.UVA+1<<40
		b.do(func() error { return f.AddMemReg(r) })
		if n := b.srv.State().Regions; n != 3 {
			t.Errorf("%d regions", n)
		}
		b.echo(v, 10)
		b.do(func() error { return f.RemMemReg(r) })
		b.echo(v, 10)
	})
	t.Run("resumes at the avail index after we died", func(t *testing.T) {
		// Chains that the dead backend took and never completed.
		v.drv[1].Send([]byte("lost?"))
		f.Close()
		b.turn()
		avail := [2]uint16{v.ring[0].AvailIdx(), v.ring[1].AvailIdx()}
		v.drv[0].Post(64)
		f = connect(avail)
		b.turn()
		if got := v.drv[0].Reap(); len(got) != 1 || string(got[0].Data) != "lost?" {
			t.Errorf("chain of the dead backend: %v\n%v\n%+v", got, b.log, b.srv.State().Rings[:2])
		}
		if n := len(v.drv[1].Reap()); n != 1 {
			t.Errorf("%d of its buffers came back, want 1", n)
		}
		b.echo(v, 3)
	})
}

func TestCallIsAPipe(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	var p [2]int
	if err := unix.Pipe2(p[:], unix.O_CLOEXEC); err != nil { // blocking
		t.Fatal(err)
	}
	defer unix.Close(p[0])
	b.do(func() error { return f.SetVringCall(0, p[1]) })
	unix.Close(p[1])
	v.drv[0].Q.ArmCall()
	b.echo(v, 1)
	var buf [64]byte
	if n, err := unix.Read(p[0], buf[:]); n < 16 || err != nil { // on exchange, and for the buffer
		t.Errorf("%d bytes in the pipe, %v", n, err)
	}
}

func TestWithoutProtocolFeatures(t *testing.T) {
	b, v := newBench(t), newVM(t)
	f := b.dial()
	b.do(func() error { return f.SetOwner() }, func() error { return f.SetFeatures(ringBits) })
	b.calls("Negotiated(0x930000000)", "Enable(0, true)", "Enable(1, true)", "Enable(2, true)", "Enable(3, true)")
	b.do(func() error { return f.SetMemTable(v.mem.Regions()) },
		func() error { return f.StartRing(0, v.setup(0, 0)) },
		func() error { return f.StartRing(1, v.setup(1, 0)) })
	b.echo(v, 5)
	b.do(func() error { _, err := f.GetVringBase(1); return err },
		func() error { return f.SetVringKick(1, v.drv[1].Kick.FD) })
	b.echo(v, 5)
}

// Rings without a kick descriptor are polled; the driver may poll as well.
func TestPolledRings(t *testing.T) {
	b, v := newBench(t), newVM(t)
	f := b.session()
	b.do(func() error { return f.SetMemTable(v.mem.Regions()) })
	for i := range 2 {
		s := v.setup(i, 0)
		s.Kick, s.Call, s.Err = -1, -1, -1
		b.do(func() error { return f.StartRing(i, s) }, func() error { return f.SetVringEnable(i, true) })
	}
	b.echo(v, 10)
	kicks := b.dev.Kicks[1]
	b.pass(100 * time.Millisecond)
	if b.dev.Kicks[1] == kicks {
		t.Errorf("not polled")
	}
	b.do(func() error { return f.SetVringKick(1, v.drv[1].Kick.FD) }, func() error { return f.SetVringKick(0, v.drv[0].Kick.FD) })
	b.turn()
	kicks = b.dev.Kicks[1]
	b.pass(100 * time.Millisecond)
	if b.dev.Kicks[1] != kicks {
		t.Errorf("still polled, with a kick descriptor")
	}
	b.echo(v, 10)
	b.do(func() error { return f.SetVringKick(1, -1) }, func() error { _, err := f.GetVringBase(1); return err })
	b.pass(10 * time.Millisecond)
	kicks = b.dev.Kicks[1]
	b.pass(100 * time.Millisecond)
	if b.dev.Kicks[1] != kicks {
		t.Errorf("polled though stopped")
	}
}

func TestDisabledRings(t *testing.T) {
	b := newBench(t)
	f, v := b.running()
	b.echo(v, 3)
	b.do(func() error { return f.SetVringEnable(0, false) }, func() error { return f.SetVringEnable(1, false) })
	v.drv[0].Post(64)
	v.drv[1].Send([]byte("lost"))
	b.turn()
	if n := len(v.drv[1].Reap()); n != 1 || b.dev.Lost != 1 {
		t.Errorf("%d chains came back, %d were discarded; want 1 and 1", n, b.dev.Lost)
	}
	if n := len(v.drv[0].Reap()); n != 0 {
		t.Errorf("delivered while disabled")
	}
	// SET_VRING_KICK must not enable or disable.
	b.do(func() error { return f.SetVringKick(0, v.drv[0].Kick.FD) })
	if b.dev.Enabled[0] {
		t.Errorf("enabled by a kick descriptor")
	}
	b.do(func() error { return f.SetVringEnable(0, true) }, func() error { return f.SetVringEnable(1, true) })
	b.do(func() error { return f.SetVringKick(1, v.drv[1].Kick.FD) })
	if !b.dev.Enabled[1] {
		t.Errorf("disabled by a kick descriptor")
	}
}
