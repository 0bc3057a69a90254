package lab

import (
	"fmt"
	"hash/fnv"
	"io"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"syscall"
	"time"
)

// Part is something that Prepare can bring.
type Part uint

// The parts. UML, the newest QEMU and the peers live in one tree; Kernel is the kernel for QEMU, StableKernel that of Stable; VSock is the kernel's own tests of
// vsock.
const (
	Tree Part = 1 << iota
	Kernel
	TestPMD
	VSock
	StableKernel
	All = Tree | Kernel | TestPMD | VSock | StableKernel
)

// Lab is where things are.
type Lab struct {
	Cache    string
	Root     string // module root of this source tree
	progress io.Writer
	mirror   string
	kernel   string // suite that it is from
}

// Locate finds the cache and the source tree; it brings nothing.
func Locate(progress io.Writer) (*Lab, error) {
	if runtime.GOARCH != "amd64" {
		return nil, fmt.Errorf("the lab's guests are for amd64 alone, this is %s", runtime.GOARCH)
	}
	root, err := moduleRoot()
	if err != nil {
		return nil, err
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = "/var/cache" // no HOME, as in some runners
	}
	return &Lab{Cache: filepath.Join(cache, "guestwire"), Root: root, progress: progress, kernel: kernelSuite}, nil
}

// Prepare brings the parts that are missing.
func Prepare(parts Part, progress io.Writer) (*Lab, error) {
	l, err := Locate(progress)
	if err != nil {
		return nil, err
	}
	if os.Geteuid() == 0 {
		if err := os.MkdirAll(l.Cache, 0o755); err != nil {
			return nil, err
		}
	}
	if err := l.packages(parts); err != nil {
		return nil, err
	}
	for _, p := range []struct {
		part  Part
		dir   string
		what  string
		build func(dir, final string) error
	}{
		{Tree, l.treeDir(), "Debian tree with User Mode Linux, QEMU and the peers (about 2 minutes)", l.buildTree},
		{Kernel, l.kernelDir(), "Debian's newest cloud kernel for QEMU (about 15 s)", l.buildKernel},
		{StableKernel, l.Stable().kernelDir(), "cloud kernel of Debian's stable release (about 15 s)", l.Stable().buildKernel},
		{TestPMD, l.dpdkDir(), "DPDK testpmd (about 10 s)", l.buildTestPMD},
		{VSock, l.vsockDir(), "kernel's vsock tests (about 30 s)", l.buildVSock},
	} {
		if parts&p.part == 0 {
			continue
		}
		if err := l.once(p.dir, p.what, p.build); err != nil {
			return nil, fmt.Errorf("preparing the %s: %w", p.what, err)
		}
	}
	return l, nil
}

// once builds a folder unless it is there: under a lock, beside its final name, renamed when complete.
func (l *Lab) once(final, what string, build func(dir, final string) error) error {
	if exists(final) {
		return nil
	}
	unlock, err := l.lock(filepath.Base(final), what)
	if err != nil {
		return err
	}
	defer unlock()
	if exists(final) { // another process was faster
		return nil
	}
	start := time.Now()
	l.say("bringing %s", what)
	tmp := final + ".part"
	if err := unmountBelow(tmp); err != nil {
		return err
	}
	if err := os.RemoveAll(tmp); err != nil {
		return err
	}
	if err := os.MkdirAll(tmp, 0o755); err != nil {
		return err
	}
	if err := build(tmp, final); err != nil {
		return err
	}
	if err := unmountBelow(tmp); err != nil {
		return err
	}
	if err := os.Rename(tmp, final); err != nil {
		return err
	}
	l.say("done in %.0f s", time.Since(start).Seconds())
	return nil
}

// unmountBelow removes what a killed debootstrap left mounted (proc and sys), before anything is deleted there.
func unmountBelow(dir string) error {
	b, err := os.ReadFile("/proc/self/mounts")
	if err != nil {
		return err
	}
	lines := strings.Split(string(b), "\n")
	for i := len(lines) - 1; i >= 0; i-- { // later mounts may lie inside earlier ones
		if f := strings.Fields(lines[i]); len(f) > 1 && strings.HasPrefix(f[1], dir+"/") {
			if err := syscall.Unmount(f[1], syscall.MNT_DETACH); err != nil {
				return fmt.Errorf("unmount %s: %w", f[1], err)
			}
		}
	}
	return nil
}

// lock takes the named lock of the cache and says so when it has to wait.
func (l *Lab) lock(name, what string) (unlock func(), err error) {
	f, err := os.OpenFile(filepath.Join(l.Cache, name+".lock"), os.O_CREATE|os.O_RDWR|syscall.O_CLOEXEC, 0o644)
	if err != nil {
		return nil, err
	}
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		l.say("another run is bringing the %s, waiting for it", what)
		if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX); err != nil {
			f.Close()
			return nil, err
		}
	}
	return func() { f.Close() }, nil
}

func (l *Lab) say(format string, a ...any) {
	if l.progress != nil {
		fmt.Fprintf(l.progress, "prepare: "+format+"\n", a...)
	}
}

func exists(path string) bool { _, err := os.Stat(path); return err == nil }

// recipe is a short name for how something is built: another recipe is another folder, so a change of the lists below rebuilds.
func recipe(parts ...any) string {
	h := fnv.New32a()
	fmt.Fprint(h, parts...)
	return fmt.Sprintf("%08x", h.Sum32())
}

func moduleRoot() (string, error) {
	dir, err := os.Getwd()
	if err != nil {
		return "", err
	}
	for d := dir; ; d = filepath.Dir(d) {
		if exists(filepath.Join(d, "go.mod")) {
			return d, nil
		}
		if d == filepath.Dir(d) {
			return "", fmt.Errorf("%s is not inside the source tree", dir)
		}
	}
}
