package e2e

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
)

// startSystemd is run in the guest: systemd in a namespace of processes and mounts, over the shared tree, which it must not write to. It knows no units but
// those in /run, and logs to the kernel, which must not leave messages out.
const startSystemd = `#!/bin/sh
echo on >/proc/sys/kernel/printk_devkmsg
mount -t cgroup2 cgroup2 /sys/fs/cgroup; mkdir -p /tmp/root
for t in sysinit basic sockets network network-online shutdown; do printf '[Unit]\nDefaultDependencies=no\n' >/run/systemd/system/$t.target; done
printf '[Unit]\nDefaultDependencies=no\nWants=guestwire-agent.socket guestwire-setup.service\n' >/run/systemd/system/start.target
cat >/tmp/inside <<'X'
mount --bind / /tmp/root; mount -o remount,bind,ro /tmp/root
for d in dev run tmp var/lib var/log sys; do mount --rbind /$d /tmp/root/$d; done
mount --bind /run/resolv.conf /tmp/root/etc/resolv.conf; mount -t proc proc /tmp/root/proc
SYSTEMD_UNIT_PATH=/run/systemd/system exec chroot /tmp/root /usr/lib/systemd/systemd --system --unit=start.target --log-target=kmsg --show-status=no
X
setsid unshare -m -p -f sh /tmp/inside </dev/null >/tmp/systemd.log 2>&1 &
`

// The units of guestagent/systemd under a real systemd: the setup says when it is done, the first client starts the agent, what each may not do it does not
// need. User Mode Linux, under `guestwire daemon`.
func TestAgentSystemd(t *testing.T) {
	e := newUMLAgentEnv(t)
	e.sh(t, "mkdir -p /run/systemd/system")
	for _, file := range units(t) {
		b, err := os.ReadFile(file)
		if err != nil {
			t.Fatal(err)
		}
		// In a namespace systemd takes itself to be in a container.
		text := strings.NewReplacer("/usr/bin/guestwire", "/run/host/guestwire", "ConditionVirtualization=vm", "ConditionVirtualization=yes").Replace(string(b))
		e.sh(t, fmt.Sprintf("cat >/run/systemd/system/%s <<'X'\n%s\nX", filepath.Base(file), text))
	}
	e.sh(t, fmt.Sprintf("cat >/run/start <<'XX'\n%s\nXX\nsh /run/start", startSystemd))
	t.Cleanup(func() {
		if t.Failed() {
			out, _ := e.g.Run("cat /tmp/systemd.log; dmesg | tail -30")
			t.Log(out)
		}
	})
	says := func(line string) {
		t.Helper()
		e.sh(t, fmt.Sprintf("for i in $(seq 200); do dmesg | grep -q '%s' && exit 0; sleep 0.1; done; exit 1", line))
	}
	says("Started guestwire-setup.service")
	has(t, e.sh(t, "ip address show dev eth0; cat /etc/resolv.conf; hostname"), "inet 10.0.2.15/24", "inet6 fd67:7765:7374::15/64", "nameserver 10.0.2.3", "by-daemon")
	e.quick(t)
	if out := e.sh(t, "dmesg | grep -c 'Started guestwire-agent.service' || true"); out != "0" {
		t.Error("the agent runs before anybody has asked for it")
	}
	has(t, e.mustCtl(t, "info"), "host name  by-daemon", "10.0.2.15/24")
	says("Started guestwire-agent.service")
	has(t, e.mustCtl(t, "time", "--how", "step"), "the guest's clock was") // CAP_SYS_TIME
	e.sh(t, "date -s @1700000000")
	has(t, e.mustCtl(t, "time"), "behind", ": set")
	file := filepath.Join(e.dir, "net.yaml")
	if err := os.WriteFile(file, []byte("addresses: [10.0.2.15/24]\nmtu: 1400\nhostname: by-ctl\ndns: [10.0.2.3]\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	has(t, e.mustCtl(t, "setup", file), "mtu: 1400, was 1500", "hostname: by-ctl, was by-daemon", "route 0.0.0.0/0: removed")
	has(t, e.mustCtl(t, "setup", "--undo"), "link eth0: down, was up")
}

// newUMLAgentEnv is a User Mode Linux guest with both devices, by `guestwire daemon`.
func newUMLAgentEnv(t *testing.T) *agentEnv {
	t.Helper()
	guestwireOnly(t)
	e := &agentEnv{env: newEnv(t, setup{noGuest: true})}
	path := func(name string) string { return filepath.Join(e.dir, name) }
	e.uds = path("u")
	file := fmt.Sprintf("guests:\n  vm:\n    net:\n      socket-path: %s\n      hostname: by-daemon\n    vsock:\n      socket-path: %s\n      guest-cid: 3\n      uds-path: %s\n      wait: 10s\n",
		path("n.sock"), path("v.sock"), e.uds)
	if err := os.WriteFile(path("guests.yaml"), []byte(file), 0o644); err != nil {
		t.Fatal(err)
	}
	d, err := spawn.Start(spawn.Options{NS: e.w.Host.Name, Log: path("guests.log")}, shared.guestwire, "daemon", "--config", path("guests.yaml"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(d.Kill)
	if err := d.WaitOutput("ready, 1 worker", 20*time.Second); err != nil {
		t.Fatal(err)
	}
	e.g, err = guest.StartUML(guest.UMLConfig{Kernel: shared.lab.UML(), Tree: shared.lab.Tree(), Prog: shared.guestprog, Dir: path("uml"), Sockets: []string{path("n.sock")}, VSock: path("v.sock"),
		Add: []string{shared.guestwire}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.g.Stop)
	return e
}

// units are the files of guestagent/systemd.
func units(t *testing.T) []string {
	t.Helper()
	files, err := filepath.Glob("../../guestagent/systemd/*")
	if err != nil || len(files) != 3 {
		t.Fatalf("%v, %v", files, err)
	}
	return files
}
