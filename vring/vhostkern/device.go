package vhostkern

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const path = "/dev/vhost-net"

// Features of the rings (virtio 1.3, 6) and of the network device (5.1.3) that
// vhost-net can have, with the values that SET_FEATURES takes.
const (
	NetFMrgRxbuf = 1 << 15
	FIndirect    = 1 << 28
	FEventIdx    = 1 << 29
	FVersion1    = 1 << 32

	// NetFHeader has the kernel strip and make the virtio header, for taps without
	// IFF_VNET_HDR. The same bit means something else in virtio.
	NetFHeader = 1 << 27
)

// Rings of a device, as virtio numbers them. RX is towards us.
const (
	RX = 0
	TX = 1
)

// Ring is one ring in an Arena.
type Ring struct {
	Size              uint16 // entries, a power of two
	Desc, Avail, Used uint64 // addresses of this process
	Kick, Call, Err   int    // eventfds: to the kernel, from it, and its complaints
}

// Device is one open vhost-net: two rings.
type Device struct{ fd int }

// Open opens the kernel's device. The error says what helps.
func Open() (fd int, err error) {
	fd, err = unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	switch {
	case err == nil:
		return fd, nil
	case errors.Is(err, os.ErrNotExist), errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		err = fmt.Errorf("%s is not there: load the kernel's module vhost_net (modprobe vhost_net)", path)
	case errors.Is(err, os.ErrPermission):
		err = fmt.Errorf("%s may not be opened: it is usually open to the group kvm", path)
	default:
		err = fmt.Errorf("%s: %w", path, err)
	}
	return -1, err
}

// New takes over a descriptor of Open.
func New(fd int) *Device { return &Device{fd} }

// Setup makes this process the owner, accepts features, all of which the kernel
// must have, and shows the kernel the arena: guest addresses are addresses of
// this process.
func (d *Device) Setup(features uint64, a *Arena) error {
	if err := d.call("VHOST_SET_OWNER", setOwner, nil); err != nil {
		return err
	}
	have, err := d.features()
	if err != nil {
		return err
	}
	if lacks := features &^ have; lacks != 0 {
		return fmt.Errorf("the kernel's vhost-net lacks features %#x, it has %#x", lacks, have)
	}
	if err := d.setFeatures(features); err != nil {
		return err
	}
	return d.setMemory(a)
}

// Attach gives ring i, whose indices are zero, to the kernel, which from now on
// moves its frames from or to the tap of a descriptor.
func (d *Device) Attach(i int, r Ring, tap int) error {
	for _, set := range []func() error{
		func() error { return d.setState("VHOST_SET_VRING_NUM", setVringNum, i, uint32(r.Size)) },
		func() error { return d.setState("VHOST_SET_VRING_BASE", setVringBase, i, 0) },
		func() error { return d.setAddr(i, r) },
		func() error { return d.setFile("VHOST_SET_VRING_ERR", setVringErr, i, r.Err) },
		func() error { return d.setFile("VHOST_SET_VRING_CALL", setVringCall, i, r.Call) },
		func() error { return d.setFile("VHOST_SET_VRING_KICK", setVringKick, i, r.Kick) },
		func() error { return d.setFile("VHOST_NET_SET_BACKEND", netSetBackend, i, tap) },
	} {
		if err := set(); err != nil {
			return fmt.Errorf("vhost-net ring %d: %w", i, err)
		}
	}
	return nil
}

// Detach takes ring i back. When it returns the kernel has let go of the ring and
// its buffers. A ring that is not attached is no error.
func (d *Device) Detach(i int) error {
	return d.setFile("VHOST_NET_SET_BACKEND", netSetBackend, i, -1)
}

// Close detaches both rings and gives the device up.
func (d *Device) Close() {
	_, _ = d.Detach(RX), d.Detach(TX)
	unix.Close(d.fd)
}
