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
	{"M22", secondFrontend},
	{"M23", silentFrontend},
	{"M28", configOverflow},
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
	must(t, f.Raw(vhostuser.Message(vhostuser.MsgSetFeatures, 0, make([]byte, 8))[:15]))
	begin := time.Now()
	closed(t, f.FD())
	if took := time.Since(begin); took < 2*time.Second {
		t.Errorf("closed after %v: the deadline is 5 s", took)
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

// strayDescriptors: descriptors on a message that takes none, and more than any
// takes. Each must be closed; start counts them.
func strayDescriptors(t *testing.T) {
	d := start(t, nil)
	one, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	must(t, err)
	defer unix.Close(one)
	many := make([]int, 40)
	for i := range many {
		many[i] = one
	}
	before := descriptors(t)
	for _, fds := range [][]int{many[:1], many[:8], many} {
		for _, r := range []vhostuser.Request{vhostuser.MsgGetFeatures, vhostuser.MsgSetVringKick, vhostuser.MsgSetMemTable} {
			f := d.dial()
			_ = f.Raw(vhostuser.Message(r, 0, make([]byte, 8)), fds...)
			if r == vhostuser.MsgGetFeatures {
				closed(t, f.FD())
			}
			f.Close()
		}
	}
	d.eventually("all descriptors to be closed", func() bool { return descriptors(t) <= before })
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

// badTables are refused, and the table before stays.
func badTables(t *testing.T) {
	d := start(t, nil)
	g := d.guest()
	good := g.mem.Regions()
	with := func(change func(rs []guestmem.Region)) []guestmem.Region {
		rs := g.mem.Regions()
		change(rs)
		return rs
	}
	for _, tt := range []struct {
		name string
		rs   []guestmem.Region
	}{
		{"none", nil},
		{"empty region", with(func(rs []guestmem.Region) { rs[0].Size = 0 })},
		{"guest address overflows", with(func(rs []guestmem.Region) { rs[0].GPA = 1<<64 - 4096 })},
		{"user address overflows", with(func(rs []guestmem.Region) { rs[0].UVA = 1<<64 - 4096 })},
		{"offset overflows", with(func(rs []guestmem.Region) { rs[0].MmapOffset = 1<<64 - 4096 })},
		{"overlap", with(func(rs []guestmem.Region) { rs[1].GPA = rs[0].GPA + 4096 })},
		{"user overlap", with(func(rs []guestmem.Region) { rs[1].UVA = rs[0].UVA + 4096 })},
	} {
		if err := g.f.SetMemTable(tt.rs); err == nil {
			t.Errorf("%s: taken", tt.name)
		}
		g.ping()
	}
	must(t, g.f.SetMemTable(good))
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

// truncatedMemory cuts guest memory short while rings run in it. Where the file
// could be sealed that fails; where not, the device breaks, and only that.
func truncatedMemory(t *testing.T) {
	other := start(t, nil).guest()
	d := start(t, nil)
	g := d.guest()
	g.ping()
	if err := unix.Ftruncate(g.mem.FD, 4096); err == nil {
		signal(g.tx.Kick.FD)
		signal(g.rx.Kick.FD)
		time.Sleep(50 * time.Millisecond)
	} else {
		g.ping()
	}
	g.leave()
	other.ping()
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

// everyDisconnect leaves at every byte of a session's messages.
func everyDisconnect(t *testing.T) {
	d := start(t, nil)
	u64 := func(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }
	var all []byte
	for _, m := range [][]byte{
		vhostuser.Message(vhostuser.MsgGetFeatures, 0, nil), vhostuser.Message(vhostuser.MsgSetOwner, 0, nil),
		vhostuser.Message(vhostuser.MsgSetFeatures, 0, u64(features)), vhostuser.Message(vhostuser.MsgSetVringNum, 0, u64(64<<32)),
		vhostuser.Message(vhostuser.MsgSetVringBase, 0, u64(0)), vhostuser.Message(vhostuser.MsgGetVringBase, 0, u64(0)),
	} {
		all = append(all, m...)
	}
	for n := range len(all) + 1 {
		f := d.dial()
		_ = f.Raw(all[:n])
		f.Close()
	}
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
