package guest

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"guestwire/test/harness/agent"
	"guestwire/test/harness/spawn"
)

// UMLConfig describes a User Mode Linux guest.
type UMLConfig struct {
	Kernel  string   // linux.uml
	Tree    string   // its root
	Prog    string   // guestprog
	Dir     string   // for its files
	Sockets []string // vhost-user net devices, in order eth0, eth1, ...
	VSock   string   // vhost-user vsock device
	Add     []string // static programs that the guest gets beside guestprog
	MemMiB  int      // 512 when 0
	NS      string   // network namespace of the process itself, for those that use it
}

// umlInit runs as process 1. The tree is shared between guests: everything that a guest may write is covered by its own tmpfs.
const umlInit = `#!/bin/sh
export PATH=/run/host:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin HOME=/tmp
mount -t sysfs sysfs /sys
mount -t tmpfs tmpfs /run; mount -t tmpfs tmpfs /tmp; mount -t tmpfs tmpfs /var/lib; mount -t tmpfs tmpfs /var/log; chmod 1777 /tmp
mkdir -p /dev/shm /dev/pts; mount -t tmpfs tmpfs /dev/shm; mount -t devpts devpts /dev/pts 2>/dev/null
: > /run/resolv.conf; mount --bind /run/resolv.conf /etc/resolv.conf
mkdir /run/host /run/dhcpcd /run/lock; mount -t hostfs none /run/host -o hostfs=%s
mount --bind /run/host/udhcpc.script /etc/udhcpc/default.script
ip link set lo up
modprobe virtio_net; modprobe vmw_vsock_virtio_transport
while :; do guestprog agent /dev/tty1; sleep 0.2; done
`

// StartUML boots the guest.
func StartUML(c UMLConfig) (g *Guest, err error) {
	if c.MemMiB == 0 {
		c.MemMiB = 512
	}
	log, err := logFile(c.Dir, "console.log")
	if err != nil {
		return nil, err
	}
	// The folder of the guest's own files is mounted on /run/host in the guest.
	own := filepath.Join(c.Dir, "host")
	if err := os.MkdirAll(own, 0o755); err != nil {
		return nil, err
	}
	for _, prog := range append([]string{c.Prog}, c.Add...) {
		if err := link(prog, filepath.Join(own, filepath.Base(prog))); err != nil {
			return nil, err
		}
	}
	initFile := filepath.Join(own, "init")
	if err := os.WriteFile(initFile, fmt.Appendf(nil, umlInit, own), 0o755); err != nil {
		return nil, err
	}
	if err := os.WriteFile(filepath.Join(own, "udhcpc.script"), []byte(UDHCPCScript), 0o755); err != nil {
		return nil, err
	}
	line, theirs, err := socketPair()
	if err != nil {
		return nil, err
	}
	defer theirs.Close()
	defer func() {
		if err != nil && g == nil {
			line.Close()
		}
	}()
	// seccomp=on: 1.3 to 2.5 times faster than tracing by ptrace, and steadier. init= must name a file of the shared root: UMLBootstrap.
	args := []string{c.Kernel, fmt.Sprintf("mem=%dM", c.MemMiB), "rootfstype=hostfs", "rootflags=" + c.Tree, "rw", "seccomp=on",
		"con=null", "con0=fd:0,fd:1", "con1=fd:3,fd:3", "quiet", "init=/opt/guestwire/init", "guestwire=" + own}
	for _, s := range c.Sockets {
		args = append(args, "virtio_uml.device="+s+":1")
	}
	if c.VSock != "" {
		args = append(args, "virtio_uml.device="+c.VSock+":19") // virtio 1.3, 5: device numbers
	}
	tmp := "/dev/shm" // guest memory is a file there; on a disk it would be slow and big
	p, err := spawn.Start(spawn.Options{Log: log, Env: []string{"TMPDIR=" + tmp}, Files: []*os.File{theirs}, NS: c.NS}, args...)
	if err != nil {
		return nil, err
	}
	g = &Guest{Name: "uml", Dir: c.Dir, proc: p, line: line, c: agent.NewClient(line), has: devices{len(c.Sockets) > 0, c.VSock != ""}}
	if err := g.ready(); err != nil {
		g.Stop()
		return nil, err
	}
	return g, nil
}

// UMLBootstrap is the /opt/guestwire/init of the tree: it finds the guest's own folder on the kernel command line and goes on with the script there.
const UMLBootstrap = `#!/bin/sh
mount -t proc proc /proc
for word in $(cat /proc/cmdline); do case $word in guestwire=*) own=${word#guestwire=};; esac; done
mount -t hostfs none /mnt -o hostfs="$own"
exec /bin/sh /mnt/init
`

// socketPair makes the line: a stream whose one end the guest's kernel gets as a descriptor.
func socketPair() (ours, theirs *os.File, err error) {
	fds, err := syscall.Socketpair(syscall.AF_UNIX, syscall.SOCK_STREAM|syscall.SOCK_CLOEXEC, 0)
	if err != nil {
		return nil, nil, err
	}
	if err := syscall.SetNonblock(fds[0], true); err != nil {
		return nil, nil, err
	}
	return os.NewFile(uintptr(fds[0]), "line"), os.NewFile(uintptr(fds[1]), "line-guest"), nil
}

// link hard-links or copies a file.
func link(from, to string) error {
	_ = os.Remove(to)
	if os.Link(from, to) == nil {
		return nil
	}
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, b, 0o755)
}

// Quote makes s one word of a shell command.
func Quote(s string) string { return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'" }
