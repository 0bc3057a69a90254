package hostile

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring/guestmem"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

const mostFDs = 253 // in one message: SCM_MAX_FD of the kernel

// zoo is one descriptor of every kind that a frontend could send.
func zoo(t *testing.T) (fds []int) {
	t.Helper()
	add := func(fd int, err error) {
		must(t, err)
		t.Cleanup(func() { unix.Close(fd) })
		fds = append(fds, fd)
	}
	add(unix.Eventfd(0, unix.EFD_CLOEXEC))
	add(unix.MemfdCreate("zoo", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING))
	add(unix.TimerfdCreate(unix.CLOCK_MONOTONIC, unix.TFD_CLOEXEC))
	add(unix.EpollCreate1(unix.EPOLL_CLOEXEC))
	add(unix.InotifyInit1(unix.IN_CLOEXEC))
	add(unix.Socket(unix.AF_INET, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0))
	add(unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0))
	add(unix.Open("/", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	add(unix.Open("/", unix.O_PATH|unix.O_CLOEXEC, 0))
	add(unix.Open("/dev/zero", unix.O_RDWR|unix.O_CLOEXEC, 0))
	add(unix.Open("/proc/self/exe", unix.O_RDONLY|unix.O_CLOEXEC, 0))
	add(unix.Open(filepath.Join(t.TempDir(), "file"), unix.O_RDWR|unix.O_CREAT|unix.O_CLOEXEC, 0o600))
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	add(pair[0], err)
	add(pair[1], nil)
	var p [2]int
	err = unix.Pipe2(p[:], unix.O_CLOEXEC)
	add(p[0], err)
	add(p[1], nil)
	return fds
}

// strayDescriptors sends every request with 1 to 253 descriptors of all kinds,
// most of which do not belong there. Each is closed: the counts are what they
// were, and the last writer of a pipe that was sent is gone.
func strayDescriptors(t *testing.T) {
	d := start(t, nil)
	kinds := zoo(t)
	before := descriptors(t)
	for _, n := range []int{1, 2, 8, 9, 40, mostFDs} {
		fds := make([]int, 0, n)
		var end [2]int
		must(t, unix.Pipe2(end[:], unix.O_CLOEXEC))
		for i := range n - 1 {
			fds = append(fds, kinds[(i+n)%len(kinds)])
		}
		fds = append(fds, end[1])
		for r := vhostuser.Request(1); r <= 45; r++ {
			for _, payload := range [][]byte{nil, make([]byte, 8)} {
				f := d.dial()
				_ = f.Raw(vhostuser.Message(r, 0, payload), fds...)
				if n > 8 {
					closed(t, f.FD())
				}
				f.Close()
			}
		}
		unix.Close(end[1])
		p := []unix.PollFd{{Fd: int32(end[0])}}
		d.eventually("the pipe's writers to be gone", func() bool {
			_, _ = unix.Poll(p, 0)
			return p[0].Revents&unix.POLLHUP != 0
		})
		unix.Close(end[0])
	}
	// Little by little: the descriptors of one message, some with each byte.
	f := d.dial()
	for _, b := range vhostuser.Message(vhostuser.MsgGetFeatures, 0, nil) {
		if f.Raw([]byte{b}, kinds...) != nil {
			break
		}
	}
	closed(t, f.FD())
	f.Close()
	d.eventually("all descriptors to be closed", func() bool { return descriptors(t) == before })
	d.healthy()
}

// sent is one message of a session, with its descriptors.
type sent struct {
	name string
	msg  []byte
	fds  []int
}

func u64(v uint64) []byte { return binary.NativeEndian.AppendUint64(nil, v) }

func u32s(v ...uint32) (b []byte) {
	for _, x := range v {
		b = binary.NativeEndian.AppendUint32(b, x)
	}
	return b
}

// regionBytes is a region as SET_MEM_TABLE and ADD_MEM_REG carry it.
func regionBytes(r guestmem.Region) (b []byte) {
	for _, v := range []uint64{r.GPA, r.Size, r.UVA, r.MmapOffset} {
		b = append(b, u64(v)...)
	}
	return b
}

// tell sends m and reads the reply, which must not be a refusal, except that all
// of config space is read-only.
func (m *sent) tell(t *testing.T, f *vhostuser.Frontend) {
	t.Helper()
	must(t, f.Raw(m.msg, m.fds...))
	h, p, err := f.ReadReply()
	own := strings.HasPrefix(m.name, "GET") || m.name == "SET_CONFIG"
	if err != nil || !own && binary.NativeEndian.Uint64(p) != 0 {
		t.Fatalf("%s: %+v % x, %v", m.name, h, p, err)
	}
}

// session is every message that the backend knows, in an order in which all are
// granted.
func (g *guest) session() (all []sent) {
	add := func(r vhostuser.Request, payload []byte, fds ...int) {
		all = append(all, sent{r.String(), vhostuser.Message(r, vhostuser.NeedReply, payload), fds})
	}
	rs := g.mem.Regions()
	has, err := g.f.GetProtocolFeatures()
	must(g.t, err)
	e := func() int { return vringtest.NewEvent(g.t).FD }
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	must(g.t, err)
	g.t.Cleanup(func() { unix.Close(pair[0]); unix.Close(pair[1]) })
	add(vhostuser.MsgGetFeatures, nil)
	add(vhostuser.MsgGetProtocolFeatures, nil)
	add(vhostuser.MsgSetProtocolFeatures, u64(has&^vhostuser.ProtocolFGPAAddresses))
	add(vhostuser.MsgGetQueueNum, nil)
	add(vhostuser.MsgGetMaxMemSlots, nil)
	add(vhostuser.MsgSetBackendReqFD, nil, pair[1])
	add(vhostuser.MsgSetOwner, nil)
	add(vhostuser.MsgSetFeatures, u64(features|vhostuser.VhostUserFProtocolFeatures))
	add(vhostuser.MsgGetConfig, append(u32s(0, 12, 0), make([]byte, 12)...))
	add(vhostuser.MsgSetConfig, append(u32s(0, 2, 1), 0, 0))
	add(vhostuser.MsgNetSetMTU, u64(1400))
	add(vhostuser.MsgSetStatus, u64(7))
	add(vhostuser.MsgGetStatus, nil)
	add(vhostuser.MsgAddMemReg, append(make([]byte, 8), regionBytes(rs[0])...), rs[0].FD)
	add(vhostuser.MsgRemMemReg, append(make([]byte, 8), regionBytes(rs[0])...), rs[0].FD)
	add(vhostuser.MsgSetMemTable, slices.Concat(u32s(2, 0), regionBytes(rs[0]), regionBytes(rs[1])), rs[0].FD, rs[1].FD)
	log := logFile(g.t, logBytes)
	add(vhostuser.MsgSetLogBase, append(u64(logBytes), u64(0)...), log)
	add(vhostuser.MsgSetLogFD, nil, e())
	for i, r := range g.rings {
		n := uint32(i)
		addr := u32s(n, 0)
		for _, gpa := range []uint64{r.DescGPA, r.UsedGPA, r.AvailGPA} {
			addr = append(addr, u64(g.mem.UVA(gpa))...)
		}
		add(vhostuser.MsgSetVringNum, u32s(n, ringSize))
		add(vhostuser.MsgSetVringBase, u32s(n, 0))
		add(vhostuser.MsgSetVringAddr, append(addr, u64(0)...))
		add(vhostuser.MsgSetVringErr, u64(uint64(n)), e())
		add(vhostuser.MsgSetVringKick, u64(uint64(n)), e())
		add(vhostuser.MsgSetVringCall, u64(uint64(n)), e())
		add(vhostuser.MsgSetVringEnable, u32s(n, 1))
	}
	add(vhostuser.MsgSendRARP, u64(0x563412005452))
	add(vhostuser.MsgSetFeatures, u64(features|vhostuser.VhostUserFProtocolFeatures|vhostuser.VhostFLogAll))
	add(vhostuser.MsgGetVringBase, u32s(0, 0))
	add(vhostuser.MsgResetDevice, nil)
	add(vhostuser.MsgResetOwner, nil)
	return all
}

// everyDisconnect leaves at every byte of every message of a whole session, each
// message with its descriptors, which go with its first byte.
func everyDisconnect(t *testing.T) {
	d := start(t, func(o *configOptions) { o.Profile = "generic" })
	g := d.frontend(features)
	for i := range g.rings {
		g.rings[i] = g.mem.NewRing(ringSize)
	}
	all := g.session()
	g.leave()
	before, maps := descriptors(t), mappings(t)
	known := map[string]bool{}
	for i, last := range all {
		known[last.name] = true
		for n := range last.msg {
			f := d.dial()
			for _, m := range all[:i] {
				m.tell(t, f)
			}
			if n > 0 {
				must(t, f.Raw(last.msg[:n], last.fds...))
				d.counters() // it has been read
			}
			f.Close()
		}
	}
	for r := vhostuser.Request(1); r < 45; r++ {
		if name := r.String(); !strings.HasPrefix(name, "request") && !known[name] {
			t.Errorf("the session has no %s", name)
		}
	}
	d.eventually("all descriptors to be closed", func() bool { return descriptors(t) <= before })
	if now := mappings(t); now > maps {
		t.Errorf("%d mappings of guest memory before, %d after", maps, now)
	}
	d.healthy()
}

// mappings counts the mappings of guest memory and logs in this process, which
// the worker and the driver share.
func mappings(t *testing.T) int {
	t.Helper()
	b, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	return strings.Count(string(b), "/memfd:")
}

// mapped returns how many bytes of the file of fd this process has mapped.
func mapped(t *testing.T, fd int) (n int) {
	t.Helper()
	var st unix.Stat_t
	must(t, unix.Fstat(fd, &st))
	b, err := os.ReadFile("/proc/self/maps")
	must(t, err)
	for line := range strings.Lines(string(b)) {
		var from, to int
		var mode, off, dev string
		var ino uint64
		if _, err := fmt.Sscanf(line, "%x-%x %s %s %s %d", &from, &to, &mode, &off, &dev, &ino); err == nil && ino == st.Ino && strings.Contains(line, "/memfd:") {
			n += to - from
		}
	}
	return n
}
