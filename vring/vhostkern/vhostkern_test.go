package vhostkern

import (
	"errors"
	"strings"
	"testing"
	"unsafe"

	"golang.org/x/sys/unix"
)

// What a C compiler makes of linux/vhost.h and linux/vhost_types.h on amd64.
func TestLayout(t *testing.T) {
	var a vringAddr
	var m memTable
	for _, c := range []struct {
		name      string
		got, want uintptr
	}{
		{"VHOST_GET_FEATURES", getFeatures, 0x8008af00},
		{"VHOST_SET_FEATURES", setFeatures, 0x4008af00},
		{"VHOST_SET_OWNER", setOwner, 0xaf01},
		{"VHOST_SET_MEM_TABLE", setMemTable, 0x4008af03},
		{"VHOST_SET_VRING_NUM", setVringNum, 0x4008af10},
		{"VHOST_SET_VRING_ADDR", setVringAddr, 0x4028af11},
		{"VHOST_SET_VRING_BASE", setVringBase, 0x4008af12},
		{"VHOST_SET_VRING_KICK", setVringKick, 0x4008af20},
		{"VHOST_SET_VRING_CALL", setVringCall, 0x4008af21},
		{"VHOST_SET_VRING_ERR", setVringErr, 0x4008af22},
		{"VHOST_NET_SET_BACKEND", netSetBackend, 0x4008af30},
		{"sizeof vhost_vring_state", unsafe.Sizeof(vringState{}), 8},
		{"sizeof vhost_vring_file", unsafe.Sizeof(vringFile{}), 8},
		{"sizeof vhost_vring_addr", unsafe.Sizeof(a), 40},
		{"desc_user_addr", unsafe.Offsetof(a.desc), 8},
		{"used_user_addr", unsafe.Offsetof(a.used), 16},
		{"avail_user_addr", unsafe.Offsetof(a.avail), 24},
		{"log_guest_addr", unsafe.Offsetof(a.lo), 32},
		{"regions", unsafe.Offsetof(m.region), 8},
		{"sizeof vhost_memory_region", unsafe.Sizeof(m.region), 32},
		{"memory_size", unsafe.Offsetof(m.region.size), 8},
		{"userspace_addr", unsafe.Offsetof(m.region.uva), 16},
		{"flags_padding", unsafe.Offsetof(m.region.flags), 24},
	} {
		if c.got != c.want {
			t.Errorf("%s is %#x, want %#x", c.name, c.got, c.want)
		}
	}
}

// The first ioctl that fails is named, with its reason. /dev/null knows none.
func TestErrorsNameTheIoctl(t *testing.T) {
	fd, err := unix.Open("/dev/null", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		t.Fatal(err)
	}
	a, err := NewArena(1 << 16)
	if err != nil {
		t.Fatal(err)
	}
	defer a.Close()
	d := New(fd)
	for name, err := range map[string]error{
		"VHOST_SET_OWNER":       d.Setup(FVersion1, a),
		"VHOST_SET_VRING_NUM":   d.Attach(RX, Ring{Size: 256}, -1),
		"VHOST_NET_SET_BACKEND": d.Detach(TX),
	} {
		if !errors.Is(err, unix.ENOTTY) || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
	d.Close()
	if err := unix.Close(fd); err != unix.EBADF {
		t.Error("the descriptor is left open")
	}
}

func TestArena(t *testing.T) {
	a, err := NewArena(3 << 20)
	if err != nil {
		t.Fatal(err)
	}
	if len(a.Mem) != 3<<20 || a.Addr%4096 != 0 || a.Addr == 0 {
		t.Errorf("%d bytes at %#x", len(a.Mem), a.Addr)
	}
	a.Mem[len(a.Mem)-1] = 1
	a.Close()
	if a, err := NewArena(-1); err == nil {
		t.Errorf("an arena of -1 bytes: %+v", a)
	}
}
