package qemu

import (
	"slices"
	"strings"
	"testing"
)

func TestComplete(t *testing.T) {
	const mem = "-object memory-backend-memfd,id=guestwire-mem,share=on,size=%s -machine memory-backend=guestwire-mem"
	const net = " -chardev socket,id=guestwire-chr,path=/run/s -netdev vhost-user,id=guestwire,chardev=guestwire-chr -device "
	size := func(s string) string { return strings.Replace(mem, "%s", s, 1) }
	for _, tt := range []struct {
		name, command string
		version       int
		nic           NIC
		added         string
	}{
		{"plain", "qemu-system-x86_64", 10, NIC{Socket: "/run/s"}, size("128M") + net + "virtio-net-pci,netdev=guestwire"},
		{"megabytes", "qemu-system-x86_64 -m 1024", 10, NIC{Socket: "/run/s"}, size("1024M") + net + "virtio-net-pci,netdev=guestwire"},
		{"suffix", "qemu-system-x86_64 -m 2G", 10, NIC{Socket: "/run/s"}, size("2G") + net + "virtio-net-pci,netdev=guestwire"},
		{"size key", "qemu-system-x86_64 -m size=512M,slots=2,maxmem=2G", 10, NIC{Socket: "/run/s"}, size("512M") + net + "virtio-net-pci,netdev=guestwire"},
		{"old under TCG", "qemu-system-x86_64", 7, NIC{Socket: "/run/s"}, size("128M") + net + "virtio-net-pci,netdev=guestwire,vectors=0"},
		{"old under KVM", "qemu-system-x86_64 -accel kvm", 7, NIC{Socket: "/run/s"}, size("128M") + net + "virtio-net-pci,netdev=guestwire"},
		{"old under KVM by machine", "qemu-system-x86_64 -M q35,accel=kvm:tcg", 7, NIC{Socket: "/run/s"}, size("128M") + net + "virtio-net-pci,netdev=guestwire"},
		{"shared memory there", "qemu-system-x86_64 -object memory-backend-memfd,id=m,share=on,size=1G -numa node,memdev=m", 10, NIC{Socket: "/run/s"}, net[1:] + "virtio-net-pci,netdev=guestwire"},
		{"device there", "qemu-system-x86_64 -device virtio-net-pci,netdev=guestwire,mac=52:54:00:12:34:56", 10, NIC{Socket: "/run/s"}, size("128M") + strings.TrimSuffix(net, " -device ")},
		{"large MTU", "qemu-system-x86_64", 10, NIC{Socket: "/run/s", MTU: 9000}, size("128M") + net + "virtio-net-pci,netdev=guestwire,host_mtu=9000"},
		{"s390x", "/usr/bin/qemu-system-s390x", 10, NIC{Socket: "/run/s"}, size("128M") + net + "virtio-net-ccw,netdev=guestwire"},
		{"microvm", "qemu-system-x86_64 -M microvm", 10, NIC{Socket: "/run/s"}, size("128M") + net + "virtio-net-device,netdev=guestwire"},
		{"stream", "qemu-system-x86_64 -m 1G", 7, NIC{Socket: "/run/a,b", Stream: true}, "-netdev stream,id=guestwire,server=off,addr.type=unix,addr.path=/run/a,,b -device virtio-net-pci,netdev=guestwire"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Fields(tt.command)
			got, err := Complete(in, tt.version, tt.nic, "")
			if err != nil {
				t.Fatal(err)
			}
			if !slices.Equal(got[:len(in)], in) {
				t.Errorf("the user's arguments changed: %q", got[:len(in)])
			}
			if added := strings.Join(got[len(in):], " "); added != tt.added {
				t.Errorf("added\n %s\nwant\n %s", added, tt.added)
			}
		})
	}
}

func TestCompleteWithVsock(t *testing.T) {
	const mem = "-object memory-backend-memfd,id=guestwire-mem,share=on,size=128M -machine memory-backend=guestwire-mem"
	const net = " -chardev socket,id=guestwire-chr,path=/run/n -netdev vhost-user,id=guestwire,chardev=guestwire-chr -device "
	const chr = " -chardev socket,id=guestwire-vsock,path=/run/v"
	for _, tt := range []struct {
		name, command string
		version       int
		nic           NIC
		added         string
	}{
		{"plain", "qemu", 10, NIC{Socket: "/run/n"}, mem + net + "virtio-net-pci,netdev=guestwire" + chr + " -device vhost-user-vsock-pci,chardev=guestwire-vsock"},
		{"old under TCG", "qemu", 7, NIC{Socket: "/run/n"}, mem + net + "virtio-net-pci,netdev=guestwire,vectors=0" + chr + " -device vhost-user-vsock-pci,chardev=guestwire-vsock,vectors=0"},
		{"device there", "qemu -device vhost-user-vsock-pci,chardev=guestwire-vsock,bus=b", 10, NIC{Socket: "/run/n"}, mem + net + "virtio-net-pci,netdev=guestwire" + chr},
		{"microvm", "qemu -M microvm", 7, NIC{Socket: "/run/n"}, mem + net + "virtio-net-device,netdev=guestwire" + chr + " -device vhost-user-vsock-device,chardev=guestwire-vsock"},
		{"beside a stream", "qemu", 10, NIC{Socket: "/run/n", Stream: true}, mem + " -netdev stream,id=guestwire,server=off,addr.type=unix,addr.path=/run/n -device virtio-net-pci,netdev=guestwire" + chr + " -device vhost-user-vsock-pci,chardev=guestwire-vsock"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			in := strings.Fields(tt.command)
			got, err := Complete(in, tt.version, tt.nic, "/run/v")
			if err != nil {
				t.Fatal(err)
			}
			if added := strings.Join(got[len(in):], " "); added != tt.added {
				t.Errorf("added\n %s\nwant\n %s", added, tt.added)
			}
		})
	}
}

func TestVsockHindrance(t *testing.T) {
	for command, says := range map[string]string{
		"":                           "",
		"qemu-system-x86_64 -m 1G":   "",
		"/usr/bin/qemu-system-s390x": "s390x",
		"qemu -device vhost-vsock-pci,guest-cid=3":                   "vhost-vsock-pci,guest-cid=3",
		"qemu -device vhost-user-vsock-pci,chardev=mine":             "chardev=mine",
		"qemu -device vhost-user-vsock-pci,chardev=guestwire-vsock":  "",
		"qemu --device virtio-rng-pci -device virtio-serial,id=s -s": "",
	} {
		if got := VsockHindrance(strings.Fields(command)); (got == "") != (says == "") || !strings.Contains(got, says) {
			t.Errorf("%q: got %q, want %q", command, got, says)
		}
	}
}

func TestCompleteRefuses(t *testing.T) {
	for _, tt := range []struct{ name, command, hint string }{
		{"nothing", "", "guestwire run"},
		{"daemonize", "qemu -daemonize", "background"},
		{"private memory", "qemu -object memory-backend-ram,id=m,size=1G -machine memory-backend=m", "share=on"},
		{"mem-path", "qemu -mem-path /dev/hugepages", "memory-backend-file"},
		{"bad size", "qemu -m lots", "1G"},
		{"our id", "qemu -netdev user,id=guestwire", "rename"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Complete(strings.Fields(tt.command), 10, NIC{Socket: "/s"}, "")
			if err == nil || !strings.Contains(err.Error(), tt.hint) {
				t.Errorf("got %v, want an error that says %q", err, tt.hint)
			}
		})
	}
}

func TestParseVersion(t *testing.T) {
	full, major, err := parseVersion("QEMU emulator version 7.2.22 (Debian 1:7.2+dfsg-7+deb12u18)\n")
	if full != "7.2.22" || major != 7 || err != nil {
		t.Errorf("got %q %d %v", full, major, err)
	}
}
