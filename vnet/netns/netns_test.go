package netns

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// The test binary is also the keeper, and the command that looks around in a
// namespace.
func TestMain(m *testing.M) {
	if len(os.Args) > 1 {
		switch os.Args[1] {
		case "netns-keeper":
			os.Exit(Keep(os.Args[2:]))
		case "look-around":
			lookAround(os.Args[2])
			return
		}
	}
	if r, w, err := os.Pipe(); err == nil { // the runtime's own two descriptors are there before we count
		r.Close()
		w.Close()
	}
	os.Exit(m.Run())
}

// view is what a process in a namespace sees.
type view struct {
	Addresses, Routes []string
	MTU, Queue        int
	Up                []string
	Resolver          string
	UID, Processes    int
}

func lookAround(file string) {
	var v view
	links, _ := netlink.LinkList()
	for _, l := range links {
		if l.Attrs().Flags&1 != 0 { // IFF_UP
			v.Up = append(v.Up, l.Attrs().Name)
		}
		if l.Attrs().Name != "lo" {
			v.MTU, v.Queue = l.Attrs().MTU, l.Attrs().TxQLen
			addrs, _ := netlink.AddrList(l, netlink.FAMILY_ALL)
			for _, a := range addrs {
				if !a.IP.IsLinkLocalUnicast() {
					v.Addresses = append(v.Addresses, a.IPNet.String())
				}
			}
		}
	}
	routes, _ := netlink.RouteList(nil, netlink.FAMILY_ALL)
	for _, r := range routes {
		if r.Gw != nil {
			v.Routes = append(v.Routes, r.Dst.String()+" by "+r.Gw.String())
		}
	}
	resolv, _ := os.ReadFile("/etc/resolv.conf")
	v.Resolver, v.UID = string(resolv), os.Getuid()
	procs, _ := filepath.Glob("/proc/[0-9]*")
	v.Processes = len(procs)
	b, _ := json.Marshal(v)
	if err := os.WriteFile(file, b, 0o666); err != nil {
		panic(err)
	}
}

var usual = Interface{
	Name: "eth0", MTU: 65520, Config: true,
	Addresses: []netip.Prefix{netip.MustParsePrefix("10.0.2.15/24"), netip.MustParsePrefix("fd67:7765:7374::15/64")},
	// The second one is on no prefix of the interface.
	Gateways: []netip.Addr{netip.MustParseAddr("10.0.2.2"), netip.MustParseAddr("fd00::1")},
	DNS:      []netip.Addr{netip.MustParseAddr("10.0.2.3")}, Search: []string{"lab.example"},
}

func config(t *testing.T, to Target, command ...string) Config {
	exe, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return Config{Target: to, Command: command, Interface: usual, Exe: exe, Keeper: []string{"keeper", "netns-keeper"}, Log: t.Logf}
}

func entered(t *testing.T, c Config) *Namespace {
	t.Helper()
	n, err := Enter(c)
	if errors.Is(err, unix.EPERM) {
		t.Skip("namespaces are not allowed here:", err)
	}
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(n.Close)
	return n
}

func finished(t *testing.T, n *Namespace) int {
	t.Helper()
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	status, err := n.Wait()
	if err != nil {
		t.Fatal(err)
	}
	return status
}

func TestParse(t *testing.T) {
	for s, want := range map[string]Target{
		"4711":              {"/proc/4711/ns/net", 4711},
		"blue":              {"/run/netns/blue", 0},
		"/tmp/ns":           {"/tmp/ns", 0},
		"/proc/12/ns/net":   {"/proc/12/ns/net", 12},
		"/proc/12/ns/netx":  {"/proc/12/ns/netx", 0},
		"/proc/self/ns/net": {"/proc/self/ns/net", 0},
	} {
		if got, err := Parse(s); err != nil || got != want {
			t.Errorf("%s: %+v, %v, want %+v", s, got, err, want)
		}
	}
}

// A command finds itself alone, as root, with a network.
func TestNew(t *testing.T) {
	file := filepath.Join(t.TempDir(), "view")
	exe, _ := os.Executable()
	before := descriptors(t)
	n := entered(t, config(t, Target{}, exe, "look-around", file))
	if n.Name != "eth0" {
		t.Errorf("the interface is called %q", n.Name)
	}
	if status := finished(t, n); status != 0 {
		t.Fatalf("status %d", status)
	}
	v := read(t, file)
	slices.Sort(v.Routes)
	for _, c := range []struct{ what, got, want string }{
		{"addresses", fmt.Sprint(v.Addresses), "[10.0.2.15/24 fd67:7765:7374::15/64]"},
		{"routes", fmt.Sprint(v.Routes), "[0.0.0.0/0 by 10.0.2.2 ::/0 by fd00::1]"},
		{"interfaces that are up", fmt.Sprint(v.Up), "[lo eth0]"},
		{"MTU and queue", fmt.Sprint(v.MTU, v.Queue), "65520 2000"},
		{"user", fmt.Sprint(v.UID), "0"},
		{"resolv.conf", v.Resolver, "nameserver 10.0.2.3\nsearch lab.example\n"},
		{"processes", fmt.Sprint(v.Processes), "2"},
	} {
		if c.got != c.want {
			t.Errorf("%s: %s, want %s", c.what, c.got, c.want)
		}
	}
	n.Close()
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
}

// Without Config there is an interface, down, and lo.
func TestBare(t *testing.T) {
	file := filepath.Join(t.TempDir(), "view")
	exe, _ := os.Executable()
	c := config(t, Target{}, exe, "look-around", file)
	c.Interface.Config, c.Interface.MTU, c.SharePIDs = false, 1400, true
	if status := finished(t, entered(t, c)); status != 0 {
		t.Fatalf("status %d", status)
	}
	if v := read(t, file); len(v.Addresses)+len(v.Routes) != 0 || fmt.Sprint(v.Up) != "[lo]" || v.MTU != 1400 || v.Processes < 3 {
		t.Errorf("%+v", v)
	}
}

func read(t *testing.T, file string) (v view) {
	t.Helper()
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &v)
	}
	if err != nil {
		t.Fatal(err)
	}
	return v
}

func TestStatus(t *testing.T) {
	noExec := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(noExec, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		command []string
		want    int
	}{
		{[]string{"true"}, 0},
		{[]string{"sh", "-c", "exit 7"}, 7},
		{[]string{"sh", "-c", "kill -9 $$"}, 137},
		{[]string{"sh", "-c", "(sleep 0.1; exit 3) & exit 5"}, 5}, // orphans change nothing
		{[]string{"no-such-command-here"}, 127},
		{[]string{noExec}, 126},
	} {
		if got := finished(t, entered(t, config(t, Target{}, tt.command...))); got != tt.want {
			t.Errorf("%q: status %d, want %d", tt.command, got, tt.want)
		}
	}
}

// Signals reach the command; one that goes on all the same ends with us.
func TestSignalAndClose(t *testing.T) {
	dir := t.TempDir()
	n := entered(t, config(t, Target{}, "sh", "-c", "trap 'exit 9' TERM; touch "+dir+"/ready; while :; do sleep 0.01; done"))
	if err := n.Run(); err != nil {
		t.Fatal(err)
	}
	await(t, "the command", func() bool { _, err := os.Stat(dir + "/ready"); return err == nil })
	n.Signal(syscall.SIGTERM)
	if status, err := n.Wait(); err != nil || status != 9 {
		t.Errorf("status %d, %v", status, err)
	}
	for _, share := range []bool{false, true} {
		c := config(t, Target{}, "sh", "-c", "trap '' TERM; echo $$ > "+dir+"/pid; exec sleep 1000")
		c.SharePIDs = share
		n = entered(t, c)
		if err := n.Run(); err != nil {
			t.Fatal(err)
		}
		keeper := n.keeper.Pid
		await(t, "the command", func() bool { b, _ := os.ReadFile(dir + "/pid"); return len(b) > 1 })
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", keeper, keeper))
		if err != nil {
			t.Skip("no children in /proc:", err)
		}
		n.Close()
		for _, pid := range strings.Fields(string(children)) {
			await(t, "the end of the command", func() bool {
				b, err := os.ReadFile("/proc/" + pid + "/stat")
				return err != nil || strings.Contains(string(b), ") Z ")
			})
		}
		os.Remove(dir + "/pid")
	}
}

func await(t *testing.T, what string, f func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !f(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%s does not come", what)
		}
	}
}

// sleeper is a process in namespaces of its own.
func sleeper(t *testing.T, flags uintptr) *exec.Cmd {
	t.Helper()
	c := exec.Command("sleep", "1000")
	c.SysProcAttr = &syscall.SysProcAttr{Cloneflags: flags, Pdeathsig: syscall.SIGKILL}
	if flags&unix.CLONE_NEWUSER != 0 {
		id := []syscall.SysProcIDMap{{ContainerID: 5, HostID: os.Getuid(), Size: 1}} // nobody is root there
		c.SysProcAttr.UidMappings, c.SysProcAttr.GidMappings = id, id
	}
	if err := c.Start(); errors.Is(err, unix.EPERM) {
		t.Skip("namespaces are not allowed here")
	} else if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { c.Process.Kill(); c.Wait() })
	return c
}

// followed turns a loop until the namespace is said to have gone; blind without the
// kernel's notices.
func followed(t *testing.T, n *Namespace, blind bool, end func()) {
	t.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	defer loop.Close()
	gone := 0
	l, err := n.Follow(loop, func() { gone++ })
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	if blind {
		loop.Remove(l.token)
		unix.Close(l.fd)
		l.fd = -1
		loop.Timers().Set(l.timer, loop.Now())
	}
	for range 3 {
		loop.Turn(0)
	}
	if gone != 0 {
		t.Fatal("the namespace has gone while it is there")
	}
	end()
	for start := time.Now(); gone == 0 && time.Since(start) < 10*time.Second; {
		loop.Turn(100 * time.Millisecond)
	}
	if gone != 1 {
		t.Errorf("told %d times that the namespace has gone", gone)
	}
}

// A process's namespace is joined, with its user namespace or without, and lasts as
// long as the process.
func TestJoinProcess(t *testing.T) {
	for _, tt := range []struct {
		name  string
		flags uintptr
	}{{"user and network", unix.CLONE_NEWUSER | unix.CLONE_NEWNET}, {"network", unix.CLONE_NEWNET}} {
		t.Run(tt.name, func(t *testing.T) {
			before := descriptors(t)
			p := sleeper(t, tt.flags)
			to, _ := Parse(fmt.Sprint(p.Process.Pid))
			n := entered(t, config(t, to))
			for _, file := range []string{"if_inet6", "dev"} {
				b, err := os.ReadFile(fmt.Sprintf("/proc/%d/net/%s", p.Process.Pid, file))
				if err != nil || !strings.Contains(string(b), "eth0") {
					t.Errorf("%s: %v\n%s", file, err, b)
				}
				if ours, _ := os.ReadFile(n.Proc() + "/net/" + file); string(ours) != string(b) && file == "if_inet6" {
					t.Errorf("the keeper sees\n%snot\n%s", ours, b)
				}
			}
			followed(t, n, false, func() { p.Process.Kill(); p.Wait() })
			n.Close()
			if after := descriptors(t); after > before+1 { // exec.Cmd keeps one for the process
				t.Errorf("%d descriptors before, %d after", before, after)
			}
		})
	}
}

// A named namespace lasts as long as its file.
func TestJoinName(t *testing.T) {
	for _, blind := range []bool{false, true} {
		joinName(t, blind)
	}
}

func joinName(t *testing.T, blind bool) {
	t.Helper()
	p := sleeper(t, unix.CLONE_NEWNET)
	file := filepath.Join(t.TempDir(), "ns")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount(fmt.Sprintf("/proc/%d/ns/net", p.Process.Pid), file, "", unix.MS_BIND, ""); err != nil {
		t.Fatal(err)
	}
	defer unix.Unmount(file, unix.MNT_DETACH)
	to, _ := Parse(file)
	n := entered(t, config(t, to))
	followed(t, n, blind, func() {
		if err := errors.Join(os.WriteFile(filepath.Dir(file)+"/another", nil, 0o600), unix.Unmount(file, unix.MNT_DETACH), os.Remove(file)); err != nil {
			t.Fatal(err)
		}
	})
}

func TestJoinFails(t *testing.T) {
	before := descriptors(t)
	for target, says := range map[string]string{
		"2147483647":     "no process 2147483647",
		"no-such-name":   "no namespace no-such-name",
		"/etc/hostname":  "no network namespace",
		"/proc/self/exe": "no network namespace",
	} {
		to, _ := Parse(target)
		if n, err := Enter(config(t, to)); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%s: %v, %v, want %q", target, n, err, says)
		}
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	p := sleeper(t, unix.CLONE_NEWNET)
	to, _ := Parse(fmt.Sprint(p.Process.Pid))
	entered(t, config(t, to))
	if _, err := Enter(config(t, to)); err == nil || !strings.Contains(err.Error(), "--ns-ifname") {
		t.Errorf("a second eth0: %v", err)
	}
	c := config(t, to)
	c.Interface.Name, c.Interface.MTU = "eth%d", 1500
	c.Interface.Addresses, c.Interface.Gateways = nil, nil
	if n := entered(t, c); n.Name != "eth1" {
		t.Errorf("the second interface is %s", n.Name)
	}
}

// Sockets that are made inside are inside.
func TestSockets(t *testing.T) {
	n := entered(t, config(t, Target{}, "true"))
	l, errno := n.Listen(unix.SOCK_STREAM, netip.MustParseAddrPort("127.0.0.1:80"))
	if errno != 0 {
		t.Fatal(errno)
	}
	defer unix.Close(l)
	if _, errno := n.Listen(unix.SOCK_STREAM, netip.MustParseAddrPort("127.0.0.1:80")); errno != unix.EADDRINUSE {
		t.Errorf("a second listener: %v", errno)
	}
	if _, errno := n.Listen(unix.SOCK_DGRAM, netip.MustParseAddrPort("[2001:db8::1]:80")); errno != unix.EADDRNOTAVAIL {
		t.Errorf("a foreign address: %v", errno)
	}
	fds, err := n.Sockets(unix.AF_INET, unix.SOCK_STREAM, 3)
	if err != nil || len(fds) != 3 {
		t.Fatalf("%d sockets, %v", len(fds), err)
	}
	defer closeAll(fds)
	// Non-blocking: in progress, or done where loopback is fast.
	if err := unix.Connect(fds[0], &unix.SockaddrInet4{Port: 80, Addr: [4]byte{127, 0, 0, 1}}); err != nil && err != unix.EINPROGRESS {
		t.Error(err)
	}
	c, _, err := unix.Accept(l)
	if err != nil {
		t.Fatal(err)
	}
	unix.Close(c)
}

func descriptors(t *testing.T) int {
	t.Helper()
	d, err := os.ReadDir("/proc/self/fd")
	if err != nil {
		t.Fatal(err)
	}
	return len(d)
}
