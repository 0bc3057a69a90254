package hostcheck

import (
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"guestwire/cmd/qemu"
)

func kernel() Item {
	it := Item{Name: "kernel", Gives: "4.18 or newer is needed (UDP segmentation), 6.11 is best (TCP peek offset)"}
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		it.Level, it.Found = Missing, err.Error()
		return it
	}
	it.Found = unix.ByteSliceToString(u.Release[:])
	return it
}

func sharedMemory() Item {
	it := Item{Name: "memfd", Gives: "guest memory shared with QEMU", Found: "works, with seals"}
	fd, err := unix.MemfdCreate("guestwire-check", unix.MFD_CLOEXEC|unix.MFD_ALLOW_SEALING)
	if err != nil {
		it.Level, it.Found, it.Hint = Broken, err.Error(), "the kernel needs CONFIG_MEMFD_CREATE"
		return it
	}
	_ = unix.Close(fd)
	return it
}

// peekOffset looks for SO_PEEK_OFF on TCP sockets, which IPv6 has got later than
// IPv4. Without either, guestwire keeps copies for both.
func peekOffset(family int) Item {
	it := Item{Name: "TCP peek offset, IPv4", Gives: "data for the guest stays in the kernel until it is acknowledged", Found: "works"}
	since := "6.9"
	if family == unix.AF_INET6 {
		it.Name, since = "TCP peek offset, IPv6", "6.11"
	}
	fd, err := unix.Socket(family, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err == unix.EAFNOSUPPORT {
		it.Found = "not needed: this host has no such addresses"
		return it
	}
	if err == nil {
		err = unix.SetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_PEEK_OFF, 0)
		_ = unix.Close(fd)
	}
	if err != nil {
		it.Level, it.Found = Missing, "no: "+err.Error()
		it.Hint = "Linux " + since + " has it; until then guestwire keeps a copy of unacknowledged data of all TCP connections, IPv4 and IPv6 alike (up to 512 KiB each), which is slower"
	}
	return it
}

func udpOffload() Item {
	it := Item{Name: "UDP GSO and GRO", Gives: "many datagrams per system call", Found: "works"}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	if err == nil {
		if err = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_SEGMENT, 0); err == nil {
			err = unix.SetsockoptInt(fd, unix.IPPROTO_UDP, unix.UDP_GRO, 1)
		}
		_ = unix.Close(fd)
	}
	if err != nil {
		it.Level, it.Found, it.Hint = Missing, "no: "+err.Error(), "Linux 5.0 has both; without them datagrams go one by one"
	}
	return it
}

func pingSockets() Item {
	it := Item{Name: "ping sockets", Gives: "ping and traceroute from the guest", Found: "allowed"}
	fd, err := unix.Socket(unix.AF_INET, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, unix.IPPROTO_ICMP)
	if err == nil {
		_ = unix.Close(fd)
		return it
	}
	it.Level = Missing
	it.Found = "refused, ping_group_range is " + firstLine("/proc/sys/net/ipv4/ping_group_range")
	it.Hint = "sysctl -w net.ipv4.ping_group_range='0 2147483647' (in /etc/sysctl.d to keep it)"
	return it
}

func qemuBinary() Item {
	it := Item{Name: "QEMU", Gives: "guestwire run, make demo"}
	path, err := exec.LookPath("qemu-system-" + qemuArch())
	if err != nil {
		it.Level, it.Found = Missing, "not in PATH"
		it.Hint = "apt-get install qemu-system-x86 (any other vhost-user frontend will do as well)"
		return it
	}
	full, major, err := qemu.Version(path)
	if err != nil {
		it.Level, it.Found = Missing, fmt.Sprintf("%s does not run: %v", path, err)
		return it
	}
	it.Found = full
	if major < 7 {
		it.Level, it.Hint = Missing, "QEMU 7.2 is the oldest that was tried"
	} else if major < 8 {
		it.Found += " (under TCG it needs vectors=0 on the device; guestwire run adds it)"
	}
	return it
}

func kvm() Item {
	it := Item{Name: "KVM", Gives: "VMs at native speed"}
	fd, err := unix.Open("/dev/kvm", unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		it.Level, it.Found = Missing, "/dev/kvm: "+err.Error()
		it.Hint = "without it QEMU emulates (slow but works); load kvm_intel or kvm_amd, join the group kvm"
		return it
	}
	defer unix.Close(fd)
	const createVM = 0xAE01 // KVM_CREATE_VM
	vm, _, errno := unix.Syscall(unix.SYS_IOCTL, uintptr(fd), createVM, 0)
	if errno != 0 {
		it.Level, it.Found = Missing, "/dev/kvm opens, but makes no VM: "+errno.Error()
		return it
	}
	_ = unix.Close(int(vm))
	it.Found = "/dev/kvm makes a VM (whether a guest boots shows only when it does)"
	return it
}

func tun() Item {
	return device("tun", "/dev/net/tun", "network namespaces", "modprobe tun; unprivileged users need mode 0666 on it, which is the usual one")
}

func vhostNet() Item {
	return device("vhost-net", "/dev/vhost-net", "faster network namespaces", "modprobe vhost_net, join the group kvm; without it guestwire moves the frames itself")
}

func device(name, path, gives, hint string) Item {
	it := Item{Name: name, Gives: gives, Found: path + " opens"}
	fd, err := unix.Open(path, unix.O_RDWR|unix.O_CLOEXEC, 0)
	if err != nil {
		it.Level, it.Found, it.Hint = Missing, path+": "+err.Error(), hint
		return it
	}
	_ = unix.Close(fd)
	return it
}

func userNamespaces() Item {
	it := Item{Name: "user namespaces", Gives: "sandbox and rootless network namespaces"}
	max, err := strconv.Atoi(firstLine("/proc/sys/user/max_user_namespaces"))
	switch {
	case err != nil:
		it.Level, it.Found = Missing, "not in this kernel"
	case max == 0 || firstLine("/proc/sys/kernel/unprivileged_userns_clone") == "0":
		it.Level, it.Found = Missing, "switched off"
		it.Hint = "sysctl -w user.max_user_namespaces=10000 kernel.unprivileged_userns_clone=1"
	default:
		it.Found = fmt.Sprintf("allowed, %d", max)
	}
	return it
}

func descriptors() Item {
	it := Item{Name: "file descriptors", Gives: "one for each flow of the guest"}
	var r unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &r); err != nil {
		it.Level, it.Found = Missing, err.Error()
		return it
	}
	it.Found = fmt.Sprintf("up to %d", r.Max)
	if r.Max < 65536 {
		it.Level, it.Found = Missing, fmt.Sprintf("no more than %d", r.Max)
		it.Hint = "raise the hard limit (ulimit -Hn, LimitNOFILE=) to hold more than that many flows"
	}
	return it
}

func firstLine(path string) string {
	b, err := os.ReadFile(path)
	if err != nil {
		return err.Error()
	}
	line, _, _ := strings.Cut(string(b), "\n")
	return strings.Join(strings.Fields(line), " ")
}
