package vhostkern

import (
	"fmt"
	"unsafe"

	"golang.org/x/sys/unix"
)

// Requests of linux/vhost.h for the architectures whose _IOC has two bits of
// direction in front (amd64, arm64, riscv64 and others: asm-generic/ioctl.h).
const (
	getFeatures   = 0x8008af00
	setFeatures   = 0x4008af00
	setOwner      = 0x0000af01
	setMemTable   = 0x4008af03
	setVringNum   = 0x4008af10
	setVringAddr  = 0x4028af11
	setVringBase  = 0x4008af12
	setVringKick  = 0x4008af20
	setVringCall  = 0x4008af21
	setVringErr   = 0x4008af22
	netSetBackend = 0x4008af30
)

// vringState is struct vhost_vring_state.
type vringState struct{ index, num uint32 }

// vringFile is struct vhost_vring_file.
type vringFile struct {
	index uint32
	fd    int32
}

// vringAddr is struct vhost_vring_addr.
type vringAddr struct {
	index, flags          uint32
	desc, used, avail, lo uint64 // lo: log_guest_addr, which must be aligned even when nothing is logged
}

// memTable is struct vhost_memory with one struct vhost_memory_region.
type memTable struct {
	count, padding uint32
	region         memRegion
}

type memRegion struct{ gpa, size, uva, flags uint64 }

func addressOf(b []byte) uint64 { return uint64(uintptr(unsafe.Pointer(unsafe.SliceData(b)))) }

// call waits where the kernel does (a detached ring is flushed first), so the
// scheduler has to know.
func (d *Device) call(name string, request uintptr, arg unsafe.Pointer) error {
	if _, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(d.fd), request, uintptr(arg)); errno != 0 {
		return fmt.Errorf("%s: %w", name, errno)
	}
	return nil
}

func (d *Device) features() (f uint64, err error) {
	err = d.call("VHOST_GET_FEATURES", getFeatures, unsafe.Pointer(&f))
	return f, err
}

func (d *Device) setFeatures(f uint64) error {
	return d.call("VHOST_SET_FEATURES", setFeatures, unsafe.Pointer(&f))
}

func (d *Device) setMemory(a *Arena) error {
	t := memTable{count: 1, region: memRegion{gpa: a.Addr, size: uint64(len(a.Mem)), uva: a.Addr}}
	return d.call("VHOST_SET_MEM_TABLE", setMemTable, unsafe.Pointer(&t))
}

func (d *Device) setAddr(i int, r Ring) error {
	a := vringAddr{index: uint32(i), desc: r.Desc, used: r.Used, avail: r.Avail}
	return d.call("VHOST_SET_VRING_ADDR", setVringAddr, unsafe.Pointer(&a))
}

func (d *Device) setState(name string, request uintptr, i int, num uint32) error {
	s := vringState{uint32(i), num}
	return d.call(name, request, unsafe.Pointer(&s))
}

func (d *Device) setFile(name string, request uintptr, i, fd int) error {
	f := vringFile{uint32(i), int32(fd)}
	return d.call(name, request, unsafe.Pointer(&f))
}
