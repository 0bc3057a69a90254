package lab

import (
	"bufio"
	"bytes"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
)

// kernelModules are those that guests may load, with what they depend on.
var kernelModules = []string{"virtio_net", "tun", "vhost_net", "veth", "dummy", "virtio_mem", "virtio_balloon",
	"vsock", "vmw_vsock_virtio_transport", "vsock_loopback", "vsock_diag"}

// The kernels are those of two suites: Debian's newest, and that of the stable release (6.12), which most guests have.
const (
	kernelSuite, stableSuite = "trixie-backports", "trixie"
	kernelPackage            = "linux-image-cloud-amd64"
)

// Stable is the lab with the kernel of the stable release in the place of the newest.
func (l *Lab) Stable() *Lab {
	s := *l
	s.kernel = stableSuite
	return &s
}

func (l *Lab) kernelDir() string {
	return filepath.Join(l.Cache, "kernel-"+recipe(l.kernel, kernelPackage, kernelModules, 1))
}

// Vmlinuz is the kernel for QEMU.
func (l *Lab) Vmlinuz() string { return filepath.Join(l.kernelDir(), "vmlinuz") }

// KernelVersion is its release.
func (l *Lab) KernelVersion() string {
	b, _ := os.ReadFile(filepath.Join(l.kernelDir(), "version"))
	return strings.TrimSpace(string(b))
}

func (l *Lab) buildKernel(dir, final string) error {
	a, err := l.suite(filepath.Join(dir, "apt"), l.kernel)
	if err != nil {
		return err
	}
	version, err := a.depends(kernelPackage, regexp.MustCompile(`Depends: linux-image-(\S+)`))
	if err != nil {
		return err
	}
	l.say("Linux %s", version)
	x := filepath.Join(dir, "x")
	packages := []string{"linux-binary-" + version, "linux-modules-" + version, "linux-base-" + version}
	image := filepath.Join(x, "usr/lib/modules", version, "vmlinuz")
	if l.kernel == stableSuite { // which has it all in one
		packages = []string{"linux-image-" + version}
		image = filepath.Join(x, "boot/vmlinuz-"+version)
	}
	if err := a.unpack(x, packages...); err != nil {
		return err
	}
	if err := os.RemoveAll(filepath.Join(dir, "apt")); err != nil {
		return err
	}
	if err := os.Rename(image, filepath.Join(dir, "vmlinuz")); err != nil {
		return err
	}
	if err := os.Symlink("usr/lib", filepath.Join(x, "lib")); err != nil && !os.IsExist(err) {
		return err
	}
	if _, err := spawn.Run(2*time.Minute, spawn.Options{}, "depmod", "-b", x, "-a", version); err != nil {
		return err
	}
	if err := l.baseImage(dir, x, version); err != nil {
		return err
	}
	if err := os.RemoveAll(x); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "version"), []byte(version+"\n"), 0o644)
}

// baseImage builds the part of the initramfs that does not change: busybox and the modules.
func (l *Lab) baseImage(dir, x, version string) error {
	img := guest.NewArchive()
	for _, d := range []string{"dev", "proc", "sys", "tmp", "run", "root", "var", "usr/bin"} {
		img.Dir(d)
	}
	if err := img.Copy("bin/busybox", "/bin/busybox"); err != nil {
		return err
	}
	applets, err := exec.Command("/bin/busybox", "--list").Output()
	if err != nil {
		return err
	}
	for _, a := range strings.Fields(string(applets)) {
		if a != "busybox" {
			img.Link("bin/"+a, "busybox")
		}
	}
	small, err := os.MkdirTemp("", "guestwire-modules")
	if err != nil {
		return err
	}
	defer os.RemoveAll(small)
	if err := l.selectModules(small, x, version); err != nil {
		return err
	}
	err = filepath.WalkDir(small, func(p string, e fs.DirEntry, err error) error {
		if err != nil || e.IsDir() {
			return err
		}
		rel, err := filepath.Rel(small, p)
		if err != nil {
			return err
		}
		return img.Copy(rel, p)
	})
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "base.cpio"), img.Bytes(), 0o644)
}

// selectModules unpacks the modules of the list and what they need into a tree of their own with its own modules.dep.
func (l *Lab) selectModules(small, x, version string) error {
	files := map[string]bool{}
	for _, m := range kernelModules {
		out, err := exec.Command("modprobe", "-d", x, "-S", version, "--show-depends", m).CombinedOutput()
		if err != nil {
			l.say("this kernel has no module %s", m) // built in or gone: the tests that need it will say
			continue
		}
		for s := bufio.NewScanner(bytes.NewReader(out)); s.Scan(); {
			if f := strings.Fields(s.Text()); len(f) > 1 && f[0] == "insmod" {
				files[f[1]] = true
			}
		}
	}
	for f := range files {
		rel, err := filepath.Rel(filepath.Join(x, "lib"), f)
		if err != nil {
			return err
		}
		to := filepath.Join(small, "lib", strings.TrimSuffix(rel, ".xz"))
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
		b, err := os.ReadFile(f)
		if err != nil {
			return err
		}
		if strings.HasSuffix(f, ".xz") {
			if b, err = exec.Command("xz", "-dc", f).Output(); err != nil {
				return fmt.Errorf("unpack %s: %w", f, err)
			}
		}
		if err := os.WriteFile(to, b, 0o644); err != nil {
			return err
		}
	}
	for _, f := range []string{"modules.order", "modules.builtin", "modules.builtin.modinfo"} {
		if b, err := os.ReadFile(filepath.Join(x, "usr/lib/modules", version, f)); err == nil {
			if err := os.WriteFile(filepath.Join(small, "lib/modules", version, f), b, 0o644); err != nil {
				return err
			}
		}
	}
	_, err := spawn.Run(time.Minute, spawn.Options{}, "depmod", "-b", small, version)
	return err
}
