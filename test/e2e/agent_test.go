package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"guestwire/guestagent/proto"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// agentEnv is a VM by `guestwire run`, with our binary in it, and the path where clients of its vsock connect.
type agentEnv struct {
	*env
	uds string
}

func newAgentEnv(t *testing.T, init, cmdline string, args ...string) *agentEnv {
	t.Helper()
	return newAgentEnvOn(t, shared.lab, init, cmdline, args...)
}

// newAgentEnvOn is newAgentEnv with the kernel of a lab.
func newAgentEnvOn(t *testing.T, kernel *lab.Lab, init, cmdline string, args ...string) *agentEnv {
	t.Helper()
	guestwireOnly(t)
	e := &agentEnv{env: newEnv(t, setup{noGuest: true})}
	dir := filepath.Join(e.dir, "run")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	e.uds = filepath.Join(dir, "vm.vsock")
	images := filepath.Join(e.dir, "images")
	if err := os.MkdirAll(images, 0o755); err != nil {
		t.Fatal(err)
	}
	initrds, err := kernel.Initrds(images, shared.guestprog, "socat", shared.guestwire)
	if err != nil {
		t.Fatal(err)
	}
	c := guest.QEMUConfig{Kernel: kernel.Vmlinuz(), Initrds: initrds, Dir: dir, Accel: shared.accel, Private: true, NS: e.w.Host.Name,
		Wrap: append(append([]string{shared.guestwire, "run", "--uds-path", e.uds, "--wait", "10s"}, args...), "--")}
	c.Initrds = append(c.Initrds, e.initrd(init))
	if cmdline != "" { // the last one counts
		c.Extra = []string{"-append", "console=ttyS0 quiet panic=-1 mitigations=off " + cmdline}
	}
	start := time.Now()
	g, err := guest.StartQEMU(c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	e.g = g
	t.Logf("guest up after %.1f s", time.Since(start).Seconds())
	return e
}

// systemdProgram is the command line of one of systemd's programs, of the tree.
func systemdProgram(name string, args ...string) []string {
	argv := shared.lab.SSHProxy() // which has systemd's own libraries
	return append(append(argv[:len(argv)-1:len(argv)-1], filepath.Join(shared.lab.Tree(), "usr/bin", name)), args...)
}

// initrd is an image with systemd-socket-activate and, if not "", an init of its own.
func (e *agentEnv) initrd(init string) string {
	a := guest.NewArchive()
	if init != "" {
		a.File("init", []byte(init), 0o755)
	}
	argv := systemdProgram("systemd-socket-activate")
	out, err := exec.Command(argv[0], append([]string{"--list"}, argv[1:]...)...).Output()
	if err != nil {
		e.t.Fatal(err)
	}
	copies := map[string]string{"bin/systemd-socket-activate": argv[len(argv)-1], "lib64/ld-linux-x86-64.so.2": argv[0]}
	for _, m := range regexp.MustCompile(`=> (/\S+)`).FindAllStringSubmatch(string(out), -1) {
		copies["lib/x86_64-linux-gnu/"+filepath.Base(m[1])] = m[1]
	}
	for to, from := range copies {
		if err := a.Copy(to, from); err != nil {
			e.t.Fatal(err)
		}
	}
	path := filepath.Join(e.dir, "init.cpio")
	if err := os.WriteFile(path, a.Bytes(), 0o644); err != nil {
		e.t.Fatal(err)
	}
	return path
}

// ctl asks the agent from the host.
func (e *agentEnv) ctl(args ...string) (string, error) {
	out, err := spawn.Run(30*time.Second, spawn.Options{}, append([]string{shared.guestwire, "ctl", "agent", "--uds-path", e.uds}, args...)...)
	return strings.TrimSpace(out), err
}

func (e *agentEnv) mustCtl(t *testing.T, args ...string) string {
	t.Helper()
	out, err := e.ctl(args...)
	if err != nil {
		t.Errorf("ctl agent %v: %v\n%s", args, err, out)
	}
	return out
}

// has checks that text has every part.
func has(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, p := range parts {
		if !strings.Contains(text, p) {
			t.Errorf("there is no %q in:\n%s", p, text)
		}
	}
}

// network is what the guest's own tools say about its network; link-local addresses and the kernel's own routes are left out.
func (e *agentEnv) network(t *testing.T) string {
	return e.sh(t, "ip address show dev eth0 | grep -v 'scope link' | grep -E 'inet|mtu' | sed 's/qdisc.*//; s/valid_lft.*//'; ip route; ip -6 route | grep default; cat /etc/resolv.conf; hostname")
}

// A guest without a DHCP client is up by `guestwire agent setup` alone: addresses, routes, MTU, resolvers, host name as the host has them.
func TestAgentSetup(t *testing.T) {
	e := newAgentEnv(t, "", "", "--mtu", "9000", "--hostname", "vm-1")
	before := e.network(t)
	if strings.Contains(before, "inet 10.") {
		t.Fatalf("the guest has a network already:\n%s", before)
	}
	out := e.sh(t, "guestwire agent setup")
	has(t, out, "link eth0: up, was down", "address 10.0.2.15/24: added", "address fd67:7765:7374::15/64: added",
		"route 0.0.0.0/0: via 10.0.2.2", "route ::/0: via fd67:7765:7374::2", "hostname: vm-1", "dns: nameserver 10.0.2.3; nameserver fd67:7765:7374::3; search lab.example")
	has(t, e.network(t), "mtu 9000", "inet 10.0.2.15/24", "inet6 fd67:7765:7374::15/64", "default via 10.0.2.2", "default via fd67:7765:7374::2", "nameserver 10.0.2.3", "search lab.example", "vm-1")
	e.quick(t)
	has(t, e.sh(t, "guestprog dns udp 10.0.2.3 www.lab.example A"), "192.0.2.80")
	if out := e.sh(t, "guestwire agent setup"); out != "" {
		t.Errorf("the second time it has changed something:\n%s", out)
	}
	t.Run("Follow", e.follow)
	t.Run("Undo", func(t *testing.T) {
		has(t, e.sh(t, "guestwire agent setup --undo"), "address 10.0.2.15/24: removed", "link eth0: down, was up")
		if after := e.network(t); after != before {
			t.Errorf("undone:\n%s\nbefore:\n%s", after, before)
		}
	})
	t.Run("File", func(t *testing.T) {
		e.sh(t, "printf 'addresses: [10.0.2.15/24]\nroutes: [{to: 0.0.0.0/0, via: 10.0.2.2}]\noffloads: {tso: false}\nmtu: 1400\n' >/tmp/net.yaml")
		has(t, e.sh(t, "guestwire agent setup --from /tmp/net.yaml"), "offload tx-tcp-segmentation: off, was on", "mtu: 1400, was 9000", "address 10.0.2.15/24: added")
		e.sh(t, "guestprog get "+service(netns.ServiceV4)+" 3000000 1")
		if out := e.sh(t, "guestwire agent setup --from /tmp/net.yaml; guestwire agent setup --undo >/dev/null; guestwire agent setup --undo"); out != "" {
			t.Errorf("it has changed something:\n%s", out)
		}
	})
}

// The same under `guestwire daemon`, in User Mode Linux: another kernel, and Debian's own tools to look with.
func TestAgentSetupUMLDaemon(t *testing.T) {
	e := newUMLAgentEnv(t)
	t.Log(e.sh(t, "uname -r"))
	if e.sh(t, "ls -d /sys/class/net/eth* | wc -l") != "1" {
		t.Fatal("it has several cards")
	}
	has(t, e.sh(t, "guestwire agent setup"), "link eth0: up, was down", "address 10.0.2.15/24: added", "route ::/0: via fd67:7765:7374::2", "hostname: by-daemon")
	has(t, e.sh(t, "ip address show dev eth0; ip route; ip -6 route; cat /etc/resolv.conf; hostname"),
		"inet 10.0.2.15/24", "inet6 fd67:7765:7374::15/64", "default via 10.0.2.2", "default via fd67:7765:7374::2 dev eth0 proto static metric 512", "nameserver 10.0.2.3", "by-daemon")
	e.quick(t)
	if out := e.sh(t, "guestwire agent setup; guestwire agent setup --undo >/dev/null; ip address show dev eth0 | grep -c inet || true"); out != "0" {
		t.Errorf("changed the second time, or left after --undo: %s", out)
	}
}

// Queues and offloads of a virtio-net card that has several: QEMU's own, on a tap.
func TestAgentSetupQueues(t *testing.T) {
	guestwireOnly(t)
	e := &agentEnv{env: newEnv(t, setup{noGuest: true})}
	dir := filepath.Join(e.dir, "tap")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	initrds, err := shared.lab.Initrds(dir, shared.guestprog, shared.guestwire)
	if err != nil {
		t.Fatal(err)
	}
	e.g, err = guest.StartQEMU(guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: initrds, Dir: dir, Accel: shared.accel, Private: true, NS: e.w.Host.Name,
		Net: []string{"-netdev", "tap,id=net0,ifname=gwtap0,script=no,downscript=no,queues=2", "-device", "virtio-net-pci,netdev=net0,mq=on,vectors=6"}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.g.Stop)
	e.sh(t, "printf 'queues: 1\noffloads: {gro: false, tx: false}\naddresses: [192.0.2.2/24]\n' >/tmp/one.yaml; printf 'queues: 3\n' >/tmp/three.yaml")
	has(t, e.sh(t, "guestwire agent setup --from /tmp/one.yaml"), "queues: 1, was 2", "offload rx-gro: off, was on", "offload tx-checksum-ip-generic: off, was on")
	if out := e.sh(t, "guestwire agent setup --from /tmp/one.yaml"); out != "" {
		t.Errorf("the second time: %s", out)
	}
	out, exit := e.g.Run("guestwire agent setup --from /tmp/three.yaml")
	has(t, out, "queues: 3, was 1: the device has 2 pairs of queues")
	if exit == 0 {
		t.Error("more queues than there are were no error")
	}
	has(t, e.sh(t, "guestwire agent setup --from /tmp/one.yaml >/dev/null; guestwire agent setup --undo"), "queues: 2, was 1", "offload rx-gro: on, was off")
}

// follow: what the host changes, the guest has without being asked.
func (e *agentEnv) follow(t *testing.T) {
	if _, err := e.g.Start(0, "setsid guestwire agent setup --follow >/tmp/follow.log 2>&1 & echo $! >/tmp/follow.pid"); err != nil {
		t.Fatal(err)
	}
	e.sh(t, "for i in $(seq 100); do grep -q 'ready, following' /tmp/follow.log && exit 0; sleep 0.1; done; cat /tmp/follow.log; exit 1")
	if err := e.w.Resolver("nameserver " + netns.ServiceV4 + "\nsearch moved.example lab.example\n"); err != nil {
		t.Fatal(err)
	}
	e.sh(t, "for i in $(seq 100); do grep -q 'search moved.example lab.example' /etc/resolv.conf && exit 0; sleep 0.1; done; cat /tmp/follow.log /etc/resolv.conf; exit 1")
	e.sh(t, "kill $(cat /tmp/follow.pid); for i in $(seq 50); do [ -e /proc/$(cat /tmp/follow.pid) ] || exit 0; sleep 0.1; done; exit 1")
	has(t, e.sh(t, "cat /tmp/follow.log"), "dns: nameserver 10.0.2.3; nameserver fd67:7765:7374::3; search moved.example lab.example, was nameserver")
}

// The initramfs of docs/guest.md, as it stands there: configured by the kernel's command line, answered from outside.
func TestAgentInitramfs(t *testing.T) {
	text, err := os.ReadFile("../../docs/guest.md")
	if err != nil {
		t.Fatal(err)
	}
	block := regexp.MustCompile("(?s)```sh\n(#!/bin/sh\n.*?)exec /bin/sh\n```").FindSubmatch(text)
	if block == nil {
		t.Fatal("docs/guest.md has no init any more")
	}
	// What the tests need besides, in the place of the shell.
	harness := "mkdir -p /dev/pts /tmp; mount -t devpts devpts /dev/pts; mount -t tmpfs tmp /tmp\nwhile :; do guestprog agent /dev/ttyS1; sleep 0.2; done\n"
	e := newAgentEnv(t, string(block[1])+harness, "guestwire.address=10.0.2.15/24 guestwire.gateway=10.0.2.2 guestwire.hostname=from-cmdline guestwire.dns=10.0.2.3")
	has(t, e.network(t), "inet 10.0.2.15/24", "default via 10.0.2.2", "from-cmdline", "nameserver 10.0.2.3")
	e.sh(t, "guestprog get "+service(netns.ServiceV4)+" 3000000 1")
	has(t, e.mustCtl(t, "info"), "host name  from-cmdline", "10.0.2.15/24")
}

// What the host asks of the agent.
func TestAgentServe(t *testing.T) {
	e := newAgentEnv(t, "", "")
	if _, err := e.ctl("--timeout", "500ms", "ping"); err == nil {
		t.Error("there is an answer without an agent")
	}
	e.startAgent(t, "guestwire agent serve")
	has(t, e.mustCtl(t, "ping"), "answered in")
	for _, c := range []struct {
		name string
		run  func(*testing.T)
	}{
		{"Setup", e.ctlSetup}, {"Info", e.ctlInfo}, {"Expose", e.ctlExpose}, {"Time", e.ctlTime}, {"OnlyTheHost", e.onlyTheHost}, {"Descriptors", e.agentDescriptors}, {"Systemd", e.socketActivated}, {"Hostile", e.hostileAgent},
	} {
		t.Run(c.name, c.run)
	}
}

// TestAgentStable: the agent on the kernel that Debian's stable release has.
func TestAgentStable(t *testing.T) {
	e := newAgentEnvOn(t, shared.lab.Stable(), "", "")
	if release := e.sh(t, "uname -r"); !strings.HasPrefix(release, "6.12.") {
		t.Errorf("the kernel is %s", release)
	}
	e.startAgent(t, "guestwire agent serve")
	t.Run("Setup", e.ctlSetup)
	t.Run("Info", e.ctlInfo)
	t.Run("Expose", e.ctlExpose)
}

func (e *agentEnv) startAgent(t *testing.T, command string) {
	t.Helper()
	if _, err := e.g.Start(0, "setsid "+command+" >/tmp/agent.log 2>&1 & echo $! >/tmp/agent.pid"); err != nil {
		t.Fatal(err)
	}
	e.sh(t, "for i in $(seq 100); do grep -qi 'ready on\\|listening on' /tmp/agent.log && exit 0; sleep 0.1; done; cat /tmp/agent.log; exit 1")
}

func (e *agentEnv) ctlSetup(t *testing.T) {
	file := filepath.Join(e.dir, "net.yaml")
	if err := os.WriteFile(file, []byte("addresses: [10.0.2.15/24, 'fd67:7765:7374::15/64']\nroutes: [{to: 0.0.0.0/0, via: 10.0.2.2}, {to: '::/0', via: 'fd67:7765:7374::2'}]\nhostname: told\nvsock_buffer: 65536\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	has(t, e.mustCtl(t, "setup", file), "address 10.0.2.15/24: added", "hostname: told", "vsock buffer: 65536")
	if out := e.mustCtl(t, "setup", file); !strings.Contains(out, "nothing to change") {
		t.Errorf("the second time: %s", out)
	}
	e.quick(t)
}

func (e *agentEnv) ctlInfo(t *testing.T) {
	has(t, e.mustCtl(t, "info"), "host name  told", "kernel     "+e.sh(t, "uname -r"), "link       eth0 up, MTU 1500 "+guest.MAC+" 10.0.2.15/24", "load ")
}

func (e *agentEnv) ctlExpose(t *testing.T) {
	if _, err := e.g.Start(0, "setsid guestprog serve 9000 >/dev/null 2>&1 &"); err != nil {
		t.Fatal(err)
	}
	e.sh(t, "for i in $(seq 100); do grep -q :2328 /proc/net/tcp /proc/net/tcp6 && exit 0; sleep 0.1; done; exit 1")
	has(t, e.mustCtl(t, "expose", "--port", "9100", "tcp:127.0.0.1:9000"), "tcp:127.0.0.1:9000 is at vsock port 9100")
	d := traffic.Dialer(func() (net.Conn, error) {
		c, _, err := vsock.DialGuest(e.uds, 9100, 10*time.Second)
		return c, err
	})
	if err := traffic.GetIn(d, 4_000_000, 1, 64<<10, time.Minute); err != nil {
		t.Errorf("from the service: %v", err)
	}
	for i := range 10 { // more at once than its buffer holds
		if err := traffic.PutIn(d, 1_000_000, uint64(i), 64<<10, time.Minute); err != nil {
			t.Errorf("to the service: %v", err)
		}
	}
	has(t, e.mustCtl(t, "info"), "exposed    vsock port 9100: tcp:127.0.0.1:9000")
	has(t, e.mustCtl(t, "expose", "--stop", "9100"), "no longer at vsock port 9100")
	if out, err := e.ctl("expose", "--stop", "9100"); err == nil || !strings.Contains(err.Error()+out, "nothing is exposed at port 9100") {
		t.Errorf("stopped twice: %v %s", err, out)
	}
}

func (e *agentEnv) ctlTime(t *testing.T) {
	e.sh(t, "date -s @1700000000")
	has(t, e.mustCtl(t, "time"), "behind", ": set")
	if behind := time.Since(e.guestTime(t)); behind.Abs() > 20*time.Second {
		t.Errorf("the guest's clock is %v behind", behind)
	}
	e.sh(t, "date -s @4000000000")
	has(t, e.mustCtl(t, "time", "--how", "step"), "ahead", ": set")
	has(t, e.mustCtl(t, "time", "--how", "slew"), "the guest's clock was")
}

func (e *agentEnv) guestTime(t *testing.T) time.Time {
	var s int64
	if _, err := fmt.Sscan(e.sh(t, "date +%s"), &s); err != nil {
		t.Fatal(err)
	}
	return time.Unix(s, 0)
}

// Processes of the guest itself are not the host, whichever way they come.
func (e *agentEnv) onlyTheHost(t *testing.T) {
	e.sh(t, "modprobe vsock_loopback")
	own := regexp.MustCompile(`vsock CID (\d+)`).FindStringSubmatch(e.g.Console(200))
	if own == nil {
		t.Fatalf("the ready line does not say the CID:\n%s", e.g.Console(200))
	}
	for i, cid := range []string{"1", own[1]} {
		out := e.sh(t, fmt.Sprintf(`printf '\0\0\0\12\1\1\0\0\0\0\0\1{}' | timeout 10 socat -t 5 - VSOCK-CONNECT:%s:%d 2>/dev/null | tr -cd '[:print:]'; true`, cid, proto.Port))
		if out != "" {
			t.Errorf("CID %s is answered: %s", cid, out)
		}
		if n := e.sh(t, "grep -c 'which is not the host' /tmp/agent.log"); n != fmt.Sprint(i+1) {
			t.Errorf("%s clients were refused:\n%s", n, e.sh(t, "cat /tmp/agent.log"))
		}
	}
}

// Many clients, good and bad: the agent keeps nothing of them.
func (e *agentEnv) agentDescriptors(t *testing.T) {
	count := "ls /proc/$(cat /tmp/agent.pid)/fd | wc -l"
	before := e.sh(t, count)
	for i := range 200 {
		c, _, err := vsock.DialGuest(e.uds, proto.Port, 10*time.Second)
		if err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if i%2 == 0 { // a length beyond the limit ends the connection
			if _, err := c.Write([]byte("\xff\xff\xff\xff")); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadAll(c); isTimeout(err) {
				t.Errorf("not ended: %v", err)
			}
		}
		c.Close()
	}
	e.sh(t, fmt.Sprintf("for i in $(seq 50); do [ $(%s) -le %s ] && exit 0; sleep 0.1; done; %s; exit 1", count, before, count))
	has(t, e.mustCtl(t, "ping"), "answered in")
}

// Started by systemd's own program for sockets, the agent takes the socket that it is given.
func (e *agentEnv) socketActivated(t *testing.T) {
	e.sh(t, "kill $(cat /tmp/agent.pid); for i in $(seq 50); do [ -e /proc/$(cat /tmp/agent.pid) ] || exit 0; sleep 0.1; done; exit 1")
	e.startAgent(t, "systemd-socket-activate --listen=vsock::1023 /bin/guestwire agent serve")
	has(t, e.mustCtl(t, "ping"), "answered in")
	has(t, e.sh(t, "cat /tmp/agent.log"), "ready on")
}

// A guest may have anything in the place of its agent: who asks it gets an error, soon.
func (e *agentEnv) hostileAgent(t *testing.T) {
	e.sh(t, "kill $(cat /tmp/agent.pid); for i in $(seq 50); do [ -e /proc/$(cat /tmp/agent.pid) ] || exit 0; sleep 0.1; done; exit 1")
	for i, c := range []struct{ says, err string }{
		{`cat /dev/zero`, "a frame of 0 bytes"},
		{`printf '\377\377\377\377'`, "a frame of 4294967295 bytes"},
		{`printf '\0\0\0\12\2\201\0\0\0\0\0\0{}'`, "version 2, not 1"},
		{`printf '\0\10\0\0\1\201\0\0\0\0\0\0{'; sleep 60`, "i/o timeout"},
		{`sleep 60`, "i/o timeout"},
		{`true`, "has ended the connection"},
		{`printf '\0\0\0\12\1\201\0\0\0\0\0\0{}\0\0\0\62\1\202\0\0\0\0\0\1{"hostname":"\\u001b]0;owned","kernel":"x"}'; sleep 60`, "hostname has characters that cannot be printed"},
	} {
		port := fmt.Sprint(4000 + i)
		e.sh(t, fmt.Sprintf("cat >/tmp/%[1]s <<'EOF'\n%[2]s\nEOF\nsetsid socat VSOCK-LISTEN:%[1]s,fork EXEC:'sh /tmp/%[1]s' >/dev/null 2>&1 & sleep 0.2; true", port, c.says))
		out, err := e.ctl("--port", port, "--timeout", "3s", "info")
		if err == nil || !strings.Contains(err.Error()+out, c.err) {
			t.Errorf("%s: %v, want %q", c.says, err, c.err)
		}
	}
}

// The units are as systemd wants them.
func TestAgentUnits(t *testing.T) {
	if os.Getenv("GUESTWIRE_E2E") == "" {
		t.Skip("needs the lab: run `make test`")
	}
	dir := t.TempDir()
	var list []string
	for _, f := range units(t) {
		b, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		to := filepath.Join(dir, filepath.Base(f))
		if err := os.WriteFile(to, []byte(strings.ReplaceAll(string(b), "/usr/bin/guestwire", shared.guestwire)), 0o644); err != nil {
			t.Fatal(err)
		}
		list = append(list, to)
	}
	out, err := spawn.Run(time.Minute, spawn.Options{}, systemdProgram("systemd-analyze", append([]string{"verify", "--man=no"}, list...)...)...)
	if err != nil || strings.Contains(out, "guestwire") { // it has remarks about units of this machine as well
		t.Errorf("systemd-analyze verify: %v\n%s", err, out)
	}
}
