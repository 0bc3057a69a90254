package lab

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
)

// Build compiles a command of this source tree into a folder, statically, and returns its path. Flags are given to `go build`.
func (l *Lab) Build(dir, pkg string, flags ...string) (string, error) {
	to := filepath.Join(dir, filepath.Base(pkg))
	args := append([]string{"go", "build", "-trimpath", "-o", to}, flags...)
	_, err := spawn.Run(5*time.Minute, spawn.Options{Dir: l.Root, Env: []string{"CGO_ENABLED=0"}}, append(args, pkg)...)
	return to, err
}

// Initrds makes the initramfs of the QEMU guests: the cached base and, in dir, what changes with this source tree. Programs may be added: those of the
// Debian tree, with their libraries (iperf3 for the benchmarks), the kernel's vsock tests, and static ones by their path.
func (l *Lab) Initrds(dir, prog string, programs ...string) ([]string, error) {
	img := guest.NewArchive()
	img.File("init", []byte(guest.QEMUInit), 0o755)

	img.File("etc/udhcpc/default.script", []byte(guest.UDHCPCScript), 0o755) // where Debian's busybox looks
	img.File("etc/resolv.conf", nil, 0o644)
	img.File("etc/hosts", []byte("127.0.0.1 localhost\n"), 0o644)
	img.File("etc/passwd", []byte("root:x:0:0:root:/root:/bin/sh\nnobody:x:65534:65534:nobody:/:/bin/false\n"), 0o644)
	img.File("etc/group", []byte("root:x:0:\nnogroup:x:65534:\n"), 0o644)
	if err := img.Copy("bin/guestprog", prog); err != nil {
		return nil, err
	}
	for _, name := range programs {
		add := l.addProgram
		switch {
		case filepath.IsAbs(name):
			add = func(img *guest.Archive, path string) error { return img.Copy("bin/"+filepath.Base(path), path) }
		case slices.Contains(vsockTests, name):
			add = func(img *guest.Archive, name string) error { return img.Copy("bin/"+name, l.VSockTest(name)) }
		}
		if err := add(img, name); err != nil {
			return nil, err
		}
	}
	overlay := filepath.Join(dir, "overlay.cpio")
	if err := os.WriteFile(overlay, img.Bytes(), 0o644); err != nil {
		return nil, err
	}
	return []string{l.base(), overlay}, nil
}

func (l *Lab) base() string { return filepath.Join(l.kernelDir(), "base.cpio") }

// Rebase makes images of Initrds, of whatever kernel, those of this lab's.
func (l *Lab) Rebase(initrds []string) []string { return append([]string{l.base()}, initrds[1:]...) }

var libraryLine = regexp.MustCompile(`=> (/\S+)`)

// addProgram adds a program of the Debian tree, its libraries and the loader.
func (l *Lab) addProgram(img *guest.Archive, name string) error {
	path := filepath.Join(l.Tree(), "usr/bin", name)
	out, err := exec.Command(loader(l.Tree()), "--library-path", libraries(l.Tree()), "--list", path).CombinedOutput()
	if err != nil {
		return fmt.Errorf("libraries of %s: %w: %s", name, err, out)
	}
	for _, m := range libraryLine.FindAllStringSubmatch(string(out), -1) {
		if err := img.Copy("lib/x86_64-linux-gnu/"+filepath.Base(m[1]), m[1]); err != nil {
			return err
		}
	}
	// glibc opens this one by itself, at the first pthread_cancel.
	if err := img.Copy("lib/x86_64-linux-gnu/libgcc_s.so.1", filepath.Join(libraries(l.Tree()), "libgcc_s.so.1")); err != nil {
		return err
	}
	if err := img.Copy("lib64/ld-linux-x86-64.so.2", loader(l.Tree())); err != nil {
		return err
	}
	return img.Copy("usr/bin/"+name, path)
}

// Accel is "kvm" when a guest really boots with it here, else "tcg". That /dev/kvm opens and even KVM_CREATE_VM works proves nothing: inside some
// hypervisors the first ordinary instruction fails. So it is tried, once per boot of this machine.
func (l *Lab) Accel() string {
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	memo := filepath.Join(l.Cache, "accel")
	if b, err := os.ReadFile(memo); err == nil {
		if id, accel, ok := strings.Cut(strings.TrimSpace(string(b)), " "); ok && id == strings.TrimSpace(string(boot)) {
			return accel
		}
	}
	accel := "tcg"
	if f, err := os.OpenFile("/dev/kvm", os.O_RDWR, 0); err == nil {
		f.Close()
		if l.bootsWithKVM() {
			accel = "kvm"
		}
	}
	l.say("QEMU guests run with %s", accel)
	_ = os.WriteFile(memo, fmt.Appendf(nil, "%s %s\n", strings.TrimSpace(string(boot)), accel), 0o644)
	return accel
}

// bootsWithKVM starts the kernel without a root: it has to get as far as missing it.
func (l *Lab) bootsWithKVM() bool {
	out, _ := spawn.Run(8*time.Second, spawn.Options{}, "qemu-system-x86_64", "-machine", "q35", "-accel", "kvm", "-cpu", "max", "-m", "256", "-nodefaults",
		"-no-user-config", "-display", "none", "-serial", "stdio", "-no-reboot", "-kernel", l.Vmlinuz(), "-append", "console=ttyS0 panic=-1")
	return strings.Contains(out, "Unable to mount root fs")
}
