package hostile

import (
	"encoding/binary"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

// logBytes is enough of a dirty log for all of the guest's memory: a bit for
// each of the 4 KiB pages up to its end.
const logBytes = (vringtest.BaseGPA + 32<<20) / 4096 / 8

func logFile(t *testing.T, size int64) int {
	t.Helper()
	fd, err := unix.MemfdCreate("log", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	must(t, err)
	t.Cleanup(func() { unix.Close(fd) })
	must(t, unix.Ftruncate(fd, size))
	return fd
}

// dirty counts the pages that the log in fd has marked.
func dirty(t *testing.T, fd int) (n int) {
	t.Helper()
	b := make([]byte, logBytes)
	_, err := unix.Pread(fd, b, 0)
	must(t, err)
	for _, x := range b {
		for ; x != 0; x &= x - 1 {
			n++
		}
	}
	return n
}

const loggedFeatures = features | vhostuser.VhostUserFProtocolFeatures | vhostuser.VhostFLogAll

// badLogs are refused, whatever is wrong with them, and the log before stays in
// use. What a guest makes the device write never marks beyond the log's end.
func badLogs(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	good := logFile(t, logBytes+4096)
	must(t, g.f.SetLogBase(good, logBytes, 0))
	must(t, g.f.SetFeatures(loggedFeatures))
	g.ping()
	small := logFile(t, 4096)
	for _, tt := range []struct {
		name         string
		fd           int
		size, offset uint64
	}{
		{"empty", good, 0, 0},
		{"offset plus size wraps", good, 1<<64 - 8, 16},
		{"beyond any file", good, 1 << 63, 0},
		{"beyond its file", small, logBytes, 0},
		{"offset beyond its file", good, logBytes, 1 << 40},
		{"smaller than guest memory", small, 4096, 0},
		{"one byte too small", good, (vringtest.BaseGPA+16<<20)/4096/8 - 1, 0},
		{"odd offset", good, logBytes, 2},
		{"an eventfd", vringtest.NewEvent(t).FD, logBytes, 0},
	} {
		if err := g.f.SetLogBase(tt.fd, tt.size, tt.offset); err == nil {
			t.Errorf("%s: taken", tt.name)
		}
		was := dirty(t, good)
		g.ping()
		if now := dirty(t, good); now < was || now == 0 {
			t.Errorf("%s: the log before is not in use: %d pages, %d before", tt.name, now, was)
		}
	}
	var behind [4096]byte
	_, err := unix.Pread(good, behind[:], logBytes)
	must(t, err)
	if behind != [4096]byte{} {
		t.Error("bits are set behind the log")
	}
	g.leave()
	d.healthy()
}

// inflight: the shared record of chains in flight is not offered. Whoever sends
// its messages all the same is refused, with any numbers, again and again.
func inflight(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	has, err := g.f.GetProtocolFeatures()
	must(t, err)
	if has&vhostuser.ProtocolFInflightShmfd != 0 {
		t.Fatal("INFLIGHT_SHMFD is offered: this row must attack it")
	}
	if err := g.f.SetProtocolFeatures(protocol | vhostuser.ProtocolFInflightShmfd); err == nil {
		t.Error("INFLIGHT_SHMFD is taken")
	}
	for range 3 {
		for _, n := range [][2]uint16{{0, 0}, {1, 128}, {0xffff, 0xffff}, {2, 3}} {
			p := binary.NativeEndian.AppendUint64(u64(1<<63), 1<<63) // size and offset
			p = binary.NativeEndian.AppendUint16(p, n[0])
			p = append(binary.NativeEndian.AppendUint16(p, n[1]), 0, 0, 0, 0)
			for _, r := range []vhostuser.Request{vhostuser.MsgGetInflightFD, vhostuser.MsgSetInflightFD} {
				if err := g.f.Send(r, p); err == nil {
					t.Errorf("%v with %v queues and entries is granted", r, n)
				}
			}
		}
		g.ping()
	}
	before := descriptors(t)
	must(t, g.f.Raw(vhostuser.Message(vhostuser.MsgSetInflightFD, vhostuser.NeedReply, make([]byte, 24)), vringtest.NewEvent(t).FD))
	closed(t, g.f.FD()) // it knows nothing of descriptors with that
	d.eventually("all descriptors to be closed", func() bool { return descriptors(t) <= before+1 })
	g.leave()
	d.healthy()
}

// migration: the log says which pages were written while it was on, and none
// when it was not. To save and load the state of the device is not offered and
// cleanly refused.
func migration(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	const deviceState = 1 << 19 // VHOST_USER_PROTOCOL_F_DEVICE_STATE
	has, err := g.f.GetProtocolFeatures()
	must(t, err)
	if has&deviceState != 0 {
		t.Fatal("DEVICE_STATE is offered: this row must attack it")
	}
	if err := g.f.SetProtocolFeatures(protocol | deviceState); err == nil {
		t.Error("DEVICE_STATE is taken")
	}
	log := logFile(t, logBytes)
	must(t, g.f.SetLogBase(log, logBytes, 0))
	g.ping()
	if n := dirty(t, log); n != 0 {
		t.Errorf("%d pages marked while the log is off", n)
	}
	must(t, g.f.SetFeatures(loggedFeatures)) // rings run
	g.ping()
	on := dirty(t, log)
	if on == 0 {
		t.Error("a received frame has marked no page")
	}
	for _, p := range [][]byte{u32s(0, 0), u32s(1, 0), make([]byte, 8)} {
		if err := g.f.Send(vhostuser.MsgSetDeviceStateFD, p); err == nil {
			t.Error("SET_DEVICE_STATE_FD is granted")
		}
	}
	if err := g.f.Send(43, nil); err == nil {
		t.Error("CHECK_DEVICE_STATE is granted")
	}
	must(t, g.f.SetFeatures(loggedFeatures&^vhostuser.VhostFLogAll))
	must(t, clearFile(log))
	g.ping()
	if n := dirty(t, log); n != 0 {
		t.Errorf("%d pages marked after the log went off", n)
	}
	// The descriptor of a pipe to save the state to costs the connection, and is
	// closed with it.
	must(t, g.f.Raw(vhostuser.Message(vhostuser.MsgSetDeviceStateFD, vhostuser.NeedReply, u32s(0, 0)), vringtest.NewEvent(t).FD))
	closed(t, g.f.FD())
	g.leave()
	d.healthy()
}

func clearFile(fd int) error {
	_, err := unix.Pwrite(fd, make([]byte, logBytes), 0)
	return err
}

// deafFrontend sends requests and reads no reply. The backend keeps at most one
// that does not fit the socket, reads no more requests meanwhile, and closes the
// connection when its time is up.
func deafFrontend(t *testing.T) {
	d := start(t, nil)
	f := d.dial()
	must(t, unix.SetNonblock(f.FD(), true))
	for stuck := 0; stuck < 3; { // both sockets are full, and the backend does not read on
		if f.Raw(vhostuser.Message(vhostuser.MsgGetFeatures, 0, nil)) == nil {
			stuck = 0
			continue
		}
		stuck++
		d.counters()
	}
	d.pass(4*time.Second, time.Second)
	if !isOpen(f.FD()) {
		t.Error("closed before its time")
	}
	d.pass(2*time.Second, time.Second)
	d.eventually("the connection to be closed", func() bool { return !isOpen(f.FD()) })
	f.Close()
	d.healthy()
}

// isOpen tells whether the backend has its end of the connection.
func isOpen(fd int) bool {
	p := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	_, _ = unix.Poll(p, 0)
	return p[0].Revents&(unix.POLLRDHUP|unix.POLLHUP) == 0
}
