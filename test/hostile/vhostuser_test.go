package hostile

import (
	"encoding/binary"
	"os"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/guestmem"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

var vhostUserRows = []row{
	{"M1", slowFrontend},
	{"M2", badHeaders},
	{"M3", unknownRequest},
	{"M4", wrongSizes},
	{"M5", strayDescriptors},
	{"M6", ringIndices},
	{"M7", featuresNotOffered},
	{"M9", badTables},
	{"M10", regionBeyondFile},
	{"M11", truncatedMemory},
	{"M12", notMemory},
	{"M21", everyDisconnect},
	{"M16", badLogs},
	{"M17", inflight},
	{"M22", secondFrontend},
	{"M23", silentFrontend},
	{"M24", deafFrontend},
	{"M28", configOverflow},
	{"M29", migration},
	{"N5", headerLength},
	{"N8", noControlQueue},
}

// dial is a bare connection.
func (d *daemon) dial() *vhostuser.Frontend {
	d.t.Helper()
	f, err := vhostuser.DialFrontend(d.path)
	must(d.t, err)
	must(d.t, f.SetTimeout(4*time.Second))
	d.t.Cleanup(f.Close)
	return f
}

// slowFrontend sends a message a byte at a time, which is fine, and then half a
// message, which costs it the connection after the deadline.
func slowFrontend(t *testing.T) {
	d := start(t, nil)
	f := d.dial()
	for _, b := range vhostuser.Message(vhostuser.MsgGetFeatures, 0, nil) {
		must(t, f.Raw([]byte{b}))
	}
	if _, _, err := f.ReadReply(); err != nil {
		t.Fatalf("a message in pieces is not answered: %v", err)
	}
	f.Close()
	whole := vhostuser.Message(vhostuser.MsgSetFeatures, 0, make([]byte, 8))
	for _, n := range []int{1, 11, 12, 15} {
		f := d.dial()
		must(t, f.Raw(whole[:n]))
		d.pass(4*time.Second, time.Second) // of the 5 s that a message may take
		if !isOpen(f.FD()) {
			t.Errorf("closed before its time, after %d bytes", n)
		}
		d.pass(2*time.Second, time.Second)
		closed(t, f.FD())
		f.Close()
	}
	d.healthy()
}

func badHeaders(t *testing.T) {
	d := start(t, nil)
	good := vhostuser.Message(vhostuser.MsgGetFeatures, 0, nil)
	for _, tt := range []struct {
		name string
		at   int
		to   uint32
	}{{"version 0", 4, 0}, {"version 2", 4, 2}, {"reply bit", 4, 1 | 1<<2}, {"reserved flag", 4, 1 | 1<<8}, {"4097 bytes", 8, 4097}, {"4 GiB", 8, 1<<32 - 1}} {
		f := d.dial()
		m := append([]byte(nil), good...)
		binary.NativeEndian.PutUint32(m[tt.at:], tt.to)
		must(t, f.Raw(m))
		closed(t, f.FD())
	}
	d.healthy()
}

func unknownRequest(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	must(t, g.f.Raw(vhostuser.Message(200, vhostuser.NeedReply, nil)))
	if _, p, err := g.f.ReadReply(); err != nil || binary.NativeEndian.Uint64(p) == 0 {
		t.Errorf("reply % x, %v; want a refusal", p, err)
	}
	g.ping()
	must(t, g.f.Raw(vhostuser.Message(0, 0, nil)))
	closed(t, g.f.FD())
	d.healthy()
}

// wrongSizes sends every request with one byte too many and too few.
func wrongSizes(t *testing.T) {
	d := start(t, nil)
	for r := vhostuser.Request(1); r <= 44; r++ {
		for _, n := range []int{1, 7, 9, 4096} {
			f := d.dial()
			_ = f.Raw(vhostuser.Message(r, 0, make([]byte, n)))
			f.Close()
		}
	}
	d.healthy()
}

// ringIndices that are right only after they have been narrowed.
func ringIndices(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	for _, i := range []uint32{2, 256, 65536, 1<<32 - 1, 1 << 31} {
		if err := g.f.SetVringNum(int(i), 64); err == nil {
			t.Errorf("SET_VRING_NUM of ring %d is taken", i)
		}
		if err := g.f.SetVringAddr(vhostuser.VringAddr{Index: i}); err == nil {
			t.Errorf("SET_VRING_ADDR of ring %d is taken", i)
		}
	}
	e := vringtest.NewEvent(t)
	for _, tt := range []struct {
		what string
		v    uint64
		fds  []int
	}{{"no descriptor, and NOFD not said", 0, nil}, {"ring 2", 2, []int{e.FD}}, {"ring 256 in what has 8 bits", 1 << 9, []int{e.FD}}} {
		if err := g.f.Send(vhostuser.MsgSetVringCall, binary.NativeEndian.AppendUint64(nil, tt.v), tt.fds...); err == nil {
			t.Errorf("SET_VRING_CALL with %s is taken", tt.what)
		}
	}
	g.leave()
	d.healthy()
}

func featuresNotOffered(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	if err := g.f.SetFeatures(features | vhostuser.FRingPacked | vhostuser.VhostUserFProtocolFeatures); err == nil {
		t.Error("RING_PACKED is taken, which was not offered")
	}
	if err := g.f.SetProtocolFeatures(protocol | 1<<40); err == nil {
		t.Error("a protocol feature that does not exist is taken")
	}
	g.ping()
	g.leave()
	d.healthy()
}

func regionBeyondFile(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	fd, err := unix.MemfdCreate("short", unix.MFD_CLOEXEC)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Ftruncate(fd, 4096))
	r := guestmem.Region{GPA: 1 << 40, UVA: 1 << 40, Size: 1 << 30, FD: fd}
	if err := g.f.AddMemReg(r); err == nil {
		t.Error("1 GiB of a file of 4 KiB is taken")
	}
	g.ping()
	g.leave()
	d.healthy()
}

// notMemory: a folder, a socket, a device, a file that is open for reading only.
func notMemory(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	open := func(path string, flags int) int {
		fd, err := unix.Open(path, flags|unix.O_CLOEXEC, 0)
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		return fd
	}
	file := t.TempDir() + "/file"
	must(t, os.WriteFile(file, make([]byte, 1<<20), 0o600))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(pair[0])
	defer unix.Close(pair[1])
	for name, fd := range map[string]int{
		"folder": open("/", unix.O_RDONLY), "socket": pair[0], "/dev/zero": open("/dev/zero", unix.O_RDWR), "read-only": open(file, unix.O_RDONLY),
	} {
		if err := g.f.AddMemReg(guestmem.Region{GPA: 1 << 40, UVA: 1 << 40, Size: 1 << 20, FD: fd}); err == nil {
			t.Errorf("a %s is taken for memory", name)
		}
	}
	g.ping()
	g.leave()
	d.healthy()
}

func secondFrontend(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	second := d.dial()
	closed(t, second.FD())
	g.ping()
	g.leave()
	d.healthy()
}

func silentFrontend(t *testing.T) {
	d := start(t, nil)
	before := descriptors(t)
	f := d.dial()
	time.Sleep(20 * time.Millisecond)
	if n := descriptors(t) - before; n > 2 { // its end and ours
		t.Errorf("a silent frontend costs %d descriptors", n)
	}
	f.Close()
	d.healthy()
}

func configOverflow(t *testing.T) {
	d := start(t, func(o *configOptions) { o.Profile = "generic" })
	f := d.dial()
	_, _, err := f.Negotiate(features, protocol|vhostuser.ProtocolFConfig)
	must(t, err)
	if _, err := f.GetConfig(0, 12); err != nil {
		t.Errorf("GET_CONFIG: %v", err)
	}
	if b, err := f.GetConfig(1<<31, 12); err == nil && len(b) == 12 {
		t.Error("config space beyond its end is read")
	}
	f.Close()
	d.healthy()
}
