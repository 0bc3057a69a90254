package platform

import (
	"encoding/binary"
	"os"
	"runtime/debug"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func memfd(t *testing.T, size int64, flags int) int {
	t.Helper()
	fd, err := unix.MemfdCreate("platform", unix.MFD_CLOEXEC|flags)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { unix.Close(fd) })
	if err := unix.Ftruncate(fd, size); err != nil {
		t.Fatal(err)
	}
	return fd
}

// F_SEAL_SHRINK keeps a frontend from taking mapped guest memory away (guestmem tries it); without sealing allowed it is refused and the guarded call of
// the event loop has to be enough.
func TestMemfdSeals(t *testing.T) {
	fd := memfd(t, 1<<20, unix.MFD_ALLOW_SEALING)
	if _, err := unix.FcntlInt(uintptr(fd), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != nil {
		t.Fatal(err)
	}
	if err := unix.Ftruncate(fd, 4096); err != unix.EPERM {
		t.Errorf("shrinking a sealed file: %v, want EPERM", err)
	}
	if _, err := unix.FcntlInt(uintptr(memfd(t, 4096, 0)), unix.F_ADD_SEALS, unix.F_SEAL_SHRINK); err != unix.EPERM {
		t.Errorf("sealing a file without MFD_ALLOW_SEALING: %v, want EPERM", err)
	}
}

// Memory that was taken away faults, and with SetPanicOnFault the fault is a panic that can be recovered, with the address: what the event loop's guarded
// call does. A system call on the same memory fails with EFAULT and does not fault.
func TestTruncatedMemoryFaults(t *testing.T) {
	fd := memfd(t, 8192, 0)
	mem, err := unix.Mmap(fd, 0, 8192, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Munmap(mem)
	if err := unix.Ftruncate(fd, 4096); err != nil {
		t.Fatal(err)
	}
	null, err := os.Open("/dev/zero")
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	if _, err := unix.Read(int(null.Fd()), mem[4096:4100]); err != unix.EFAULT {
		t.Errorf("read(2) into memory that is gone: %v, want EFAULT", err)
	}
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	var fault interface{ Addr() uintptr }
	func() {
		defer func() { fault, _ = recover().(interface{ Addr() uintptr }) }()
		mem[4096] = 1
	}()
	if fault == nil {
		t.Error("no recoverable fault with an address")
	}
}

// A saturated eventfd blocks a blocking writer for ever: kick and call descriptors are made non-blocking, and then EAGAIN means "signalled already".
func TestEventfdSaturates(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	b := make([]byte, 8)
	binary.NativeEndian.PutUint64(b, 1<<64-2)
	if _, err := unix.Write(fd, b); err != nil {
		t.Fatal(err)
	}
	binary.NativeEndian.PutUint64(b, 1)
	if _, err := unix.Write(fd, b); err != unix.EAGAIN {
		t.Errorf("writing to a saturated eventfd: %v, want EAGAIN", err)
	}
	if _, err := unix.Read(fd, b); err != nil || binary.NativeEndian.Uint64(b) != 1<<64-2 {
		t.Errorf("reading it: %d, %v", binary.NativeEndian.Uint64(b), err)
	}
}

// O_NONBLOCK belongs to the open file, not to the descriptor: setting it on our copy of a frontend's eventfd sets it for the frontend too. vhostuser does so
// knowingly.
func TestNonblockIsShared(t *testing.T) {
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(fd)
	dup, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	if err := unix.SetNonblock(dup, true); err != nil {
		t.Fatal(err)
	}
	flags, err := unix.FcntlInt(uintptr(fd), unix.F_GETFL, 0)
	if err != nil || flags&unix.O_NONBLOCK == 0 {
		t.Errorf("flags of the other descriptor: %#x, %v", flags, err)
	}
}

// An event that epoll_wait has fetched may belong to a descriptor that was closed a moment ago, while its number already names another: what the event loop's
// generations are for. And closing a descriptor does not take it off the epoll set while a duplicate lives: why the loop removes before it closes.
func TestEpollRemembersDuplicates(t *testing.T) {
	ep, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(ep)
	fd, err := unix.Eventfd(0, unix.EFD_CLOEXEC|unix.EFD_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	dup, err := unix.Dup(fd)
	if err != nil {
		t.Fatal(err)
	}
	defer unix.Close(dup)
	ev := unix.EpollEvent{Events: unix.EPOLLIN, Fd: 7}
	if err := unix.EpollCtl(ep, unix.EPOLL_CTL_ADD, fd, &ev); err != nil {
		t.Fatal(err)
	}
	unix.Close(fd)
	if _, err := unix.Write(dup, []byte{1, 0, 0, 0, 0, 0, 0, 0}); err != nil {
		t.Fatal(err)
	}
	var evs [4]unix.EpollEvent
	n, err := unix.EpollWait(ep, evs[:], 1000)
	if n != 1 || evs[0].Fd != 7 {
		t.Errorf("%d events, %v: want one for the closed descriptor", n, err)
	}
}

// A rename over a watched name and a write to a watched file each give an event: how resolv.conf is followed.
func TestInotifySeesReplacement(t *testing.T) {
	dir := t.TempDir()
	name := dir + "/resolv.conf"
	if err := os.WriteFile(name, []byte("a"), 0o644); err != nil {
		t.Fatal(err)
	}
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	f := os.NewFile(uintptr(fd), "inotify")
	defer f.Close()
	if _, err := unix.InotifyAddWatch(fd, dir, unix.IN_MOVED_TO|unix.IN_CLOSE_WRITE); err != nil {
		t.Fatal(err)
	}
	for what, change := range map[string]func() error{
		"rewrite": func() error { return os.WriteFile(name, []byte("b"), 0o644) },
		"replacement": func() error {
			if err := os.WriteFile(name+".new", []byte("c"), 0o644); err != nil {
				return err
			}
			return os.Rename(name+".new", name)
		},
	} {
		if err := change(); err != nil {
			t.Fatal(err)
		}
		_ = f.SetReadDeadline(time.Now().Add(2 * time.Second))
		if _, err := f.Read(make([]byte, 4096)); err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}
