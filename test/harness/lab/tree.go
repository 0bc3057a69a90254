package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
)

// treePackages are what the guests and the peers of the tests are made of, beyond Debian's minimum.
var treePackages = []string{
	"passt", "iperf3", "netperf", "socat", "ncat", "curl", "iproute2", "iputils-ping", "traceroute", "bind9-dnsutils", "ethtool", "kmod", "procps",
	"udhcpc", "dhcpcd-base", "tcpdump", "ca-certificates", "vhost-device-vsock", "qemu-system-x86", "systemd", "openssh-client", "openssh-server", "strace",
}

const treeSuite = "forky"

func (l *Lab) treeDir() string {
	return filepath.Join(l.Cache, "tree-"+recipe(treeSuite, treePackages, guest.UMLBootstrap, 1))
}

// Tree is the root folder of the Debian tree.
func (l *Lab) Tree() string { return l.treeDir() }

// UML is the User Mode Linux program.
func (l *Lab) UML() string { return filepath.Join(l.treeDir(), "opt/guestwire/linux.uml") }

func (l *Lab) buildTree(dir, final string) error {
	mirror, err := l.debianMirror()
	if err != nil {
		return err
	}
	debs := filepath.Join(l.Cache, "debs") // survives an interrupted run
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	// Debian 12's debootstrap has no script named after a suite this new; all of them are the one of sid.
	log := filepath.Join(l.Cache, "debootstrap.log")
	_ = os.Remove(log)
	_, err = spawn.Run(20*time.Minute, spawn.Options{Log: log, Env: []string{"DEBIAN_FRONTEND=noninteractive"}},
		"debootstrap", "--variant=minbase", "--cache-dir="+debs, "--include="+strings.Join(treePackages, ","), treeSuite, dir, mirror, "sid")
	if err != nil {
		return fmt.Errorf("%w (whole log: %s)", err, log)
	}
	_ = os.RemoveAll(debs)
	if err := l.addUML(dir, final); err != nil {
		return err
	}
	return os.Chmod(filepath.Join(dir, "tmp"), 0o1777)
}

// addUML puts User Mode Linux and its modules into the tree. The program needs the tree's C library but not the tree as its root: its interpreter and
// library path are set to where the tree will be.
func (l *Lab) addUML(dir, final string) error {
	a, err := l.suite(filepath.Join(dir, "opt/apt"), treeSuite)
	if err != nil {
		return err
	}
	own := filepath.Join(dir, "opt/guestwire")
	unpacked := filepath.Join(dir, "opt/uml")
	if err := a.unpack(unpacked, "user-mode-linux"); err != nil {
		return err
	}
	if err := os.MkdirAll(own, 0o755); err != nil {
		return err
	}
	kernel := filepath.Join(own, "linux.uml")
	if err := os.Rename(filepath.Join(unpacked, "usr/bin/linux.uml"), kernel); err != nil {
		return err
	}
	if _, err := spawn.Run(time.Minute, spawn.Options{}, "patchelf", "--set-interpreter", loader(final), "--set-rpath", libraries(final), kernel); err != nil {
		return err
	}
	modules, err := filepath.Glob(filepath.Join(unpacked, "usr/lib/uml/modules/*"))
	if err != nil || len(modules) == 0 {
		return fmt.Errorf("user-mode-linux brought no modules (%v)", err)
	}
	for _, m := range modules {
		to := filepath.Join(dir, "usr/lib/modules", filepath.Base(m))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		if err := os.Rename(m, to); err != nil {
			return err
		}
		if _, err := spawn.Run(time.Minute, spawn.Options{}, "depmod", "-b", dir, filepath.Base(m)); err != nil {
			return err
		}
	}
	if err := os.WriteFile(filepath.Join(own, "init"), []byte(guest.UMLBootstrap), 0o755); err != nil {
		return err
	}
	_ = os.RemoveAll(unpacked)
	return os.RemoveAll(filepath.Join(dir, "opt/apt"))
}

func loader(tree string) string    { return filepath.Join(tree, "usr/lib64/ld-linux-x86-64.so.2") }
func libraries(tree string) string { return filepath.Join(tree, "usr/lib/x86_64-linux-gnu") }

// Program is the command line of a program of the tree, run on this machine with the tree's C library.
func (l *Lab) Program(name string, args ...string) []string {
	path := filepath.Join(l.Tree(), "usr/bin", name)
	return append([]string{loader(l.Tree()), "--library-path", libraries(l.Tree()), "--argv0", path, path}, args...)
}

// QEMU is the newest QEMU, the tree's: what goes before and after a command line (package guest), and its environment.
func (l *Lab) QEMU() (wrap []string, binary string, args, env []string) {
	argv := l.Program("qemu-system-x86_64")
	share := filepath.Join(l.Tree(), "usr/share")
	return argv[:len(argv)-1], argv[len(argv)-1], []string{"-L", filepath.Join(share, "qemu"), "-L", filepath.Join(share, "seabios")},
		[]string{"QEMU_MODULE_DIR=" + filepath.Join(libraries(l.Tree()), "qemu")}
}

// SSHProxy is systemd's proxy for ssh, which speaks the hybrid protocol for addresses vsock-mux/PATH.
func (l *Lab) SSHProxy() []string {
	return []string{loader(l.Tree()), "--library-path", libraries(l.Tree()) + ":" + filepath.Join(libraries(l.Tree()), "systemd"), filepath.Join(l.Tree(), "usr/lib/systemd/systemd-ssh-proxy")}
}
