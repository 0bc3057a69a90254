package tap

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const device = "/dev/net/tun"

// Open makes the tap interface of a name, which may have a %d for a number, in the
// network namespace of the calling thread. It needs CAP_NET_ADMIN there. The
// interface lives as long as the descriptor. got is the name that it has.
func Open(name string) (fd int, got string, err error) {
	ifr, err := unix.NewIfreq(name)
	if err != nil {
		return -1, "", fmt.Errorf("interface name %q: use 1 to 15 characters", name)
	}
	fd, err = unix.Open(device, unix.O_RDWR|unix.O_CLOEXEC|unix.O_NONBLOCK, 0)
	if err != nil {
		return -1, "", explain(err)
	}
	ifr.SetUint16(unix.IFF_TAP | unix.IFF_NO_PI | unix.IFF_VNET_HDR)
	if err := unix.IoctlIfreq(fd, unix.TUNSETIFF, ifr); err != nil {
		unix.Close(fd)
		return -1, "", fmt.Errorf("make tap interface %s: %w", name, err)
	}
	return fd, ifr.Name(), nil
}

// explain says what helps against the usual reasons for having no tap.
func explain(err error) error {
	switch {
	case errors.Is(err, os.ErrNotExist):
		return fmt.Errorf("%s is not there: load the kernel's module tun (modprobe tun), or give the container the device", device)
	case errors.Is(err, os.ErrPermission):
		return fmt.Errorf("%s may not be opened: it is usually open to everybody (chmod 0666 %s)", device, device)
	case errors.Is(err, unix.ENXIO), errors.Is(err, unix.ENODEV):
		return fmt.Errorf("the kernel has no tap interfaces (CONFIG_TUN)")
	}
	return fmt.Errorf("%s: %w", device, err)
}

// Offloads of TUNSETOFFLOAD (linux/if_tun.h): what we take of the namespace.
const (
	tunCsum   = 0x01
	tunTSO4   = 0x02
	tunTSO6   = 0x04
	tunTSOECN = 0x08
	tunUSO4   = 0x20 // with tunUSO6 or not at all, Linux 6.2
	tunUSO6   = 0x40
)

// Setup makes the descriptor ready for frames, and tells whether trains of
// datagrams pass.
func Setup(fd int) (uso bool, err error) {
	if err := unix.SetNonblock(fd, true); err != nil {
		return false, err
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETHDRSZ, HdrLen); err != nil {
		return false, fmt.Errorf("header of %d bytes: %w", HdrLen, err)
	}
	if err := unix.IoctlSetPointerInt(fd, unix.TUNSETVNETLE, 1); err != nil {
		return false, fmt.Errorf("little-endian headers: %w", err)
	}
	const tso = tunCsum | tunTSO4 | tunTSO6 | tunTSOECN
	for _, offer := range []int{tso | tunUSO4 | tunUSO6, tso, tunCsum, 0} {
		if err = unix.IoctlSetInt(fd, unix.TUNSETOFFLOAD, offer); err == nil {
			return offer&tunUSO4 != 0, nil
		}
	}
	return false, fmt.Errorf("offloads: %w", err)
}
