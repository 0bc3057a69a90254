package qemu

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
)

// netdevID is the id under which users may refer to our netdev.
const netdevID = "guestwire"

// NIC is what the completed command line shall connect to.
type NIC struct {
	Socket string // path of the backend's UNIX socket
	Stream bool   // -netdev stream instead of vhost-user
	MTU    int    // announced to the guest (host_mtu) when not 1500
}

// Complete returns command with what is missing added: command[0] is the QEMU
// binary, version its major version (0: unknown, taken as new), vsockSocket the
// path of the vsock device's backend ("": no such device).
func Complete(command []string, version int, nic NIC, vsockSocket string) ([]string, error) {
	if len(command) == 0 {
		return nil, fmt.Errorf("no command: write guestwire run [options] -- qemu-system-x86_64 ARGS")
	}
	a := args(command[1:])
	if a.has("daemonize") {
		return nil, fmt.Errorf("-daemonize: guestwire run stays with the VM and ends with it: leave the option out, and put guestwire itself in the background")
	}
	for _, v := range a.values("netdev", "nic") {
		if properties(v)["id"] == netdevID {
			return nil, fmt.Errorf("-netdev id=%s: this id is guestwire's own: rename yours, or leave it out and let guestwire add it", netdevID)
		}
	}
	out := append([]string{}, command...)
	if !nic.Stream || vsockSocket != "" {
		mem, err := memory(a)
		if err != nil {
			return nil, err
		}
		out = append(out, mem...)
	}
	out = append(out, netdev(nic)...)
	out = append(out, device(command[0], a, version, nic)...)
	if vsockSocket != "" {
		out = append(out, vsock(a, version, vsockSocket)...)
	}
	return out, nil
}

// memory makes guest memory shareable, which vhost-user needs. A backend that
// the user has set up is kept, if it is shared.
func memory(a args) ([]string, error) {
	used := map[string]bool{}
	for _, v := range a.values("machine", "M") {
		used[properties(v)["memory-backend"]] = true
	}
	for _, v := range a.values("numa") {
		used[properties(v)["memdev"]] = true
	}
	delete(used, "")
	for _, v := range a.values("object") {
		p := properties(v)
		if !strings.HasPrefix(p[""], "memory-backend-") || !used[p["id"]] {
			continue
		}
		if p["share"] != "on" && p["share"] != "true" && p["share"] != "yes" {
			return nil, fmt.Errorf("-object %s: the guest's memory is not shared, so no vhost-user backend can reach it: add share=on, or use --transport stream", v)
		}
		return nil, nil
	}
	if len(used) > 0 {
		return nil, nil // defined where we cannot see it; QEMU will say if it is missing
	}
	if len(a.values("mem-path")) > 0 {
		return nil, fmt.Errorf("-mem-path: write it as -object memory-backend-file,id=mem,mem-path=...,size=...,share=on -machine memory-backend=mem")
	}
	size, err := memorySize(a)
	if err != nil {
		return nil, err
	}
	return []string{
		"-object", "memory-backend-memfd,id=guestwire-mem,share=on,size=" + size,
		"-machine", "memory-backend=guestwire-mem",
	}, nil
}

// memorySize reads -m: a number of MiB or with a suffix, alone or as size=.
func memorySize(a args) (string, error) {
	ms := a.values("m")
	if len(ms) == 0 {
		return "128M", nil // QEMU's default
	}
	p := properties(ms[len(ms)-1])
	s := p["size"]
	if s == "" {
		s = p[""]
	}
	if s == "" {
		return "128M", nil
	}
	if _, err := strconv.ParseUint(s, 10, 64); err == nil {
		return s + "M", nil
	}
	if _, err := strconv.ParseFloat(s[:len(s)-1], 64); err != nil || !strings.ContainsAny(s[len(s)-1:], "bBkKmMgGtT") {
		return "", fmt.Errorf("-m %s: is no memory size: write MiB like 1024, or a suffix like 1G", ms[len(ms)-1])
	}
	return s, nil
}

func netdev(nic NIC) []string {
	if nic.Stream {
		return []string{"-netdev", "stream,id=" + netdevID + ",server=off,addr.type=unix,addr.path=" + escape(nic.Socket)}
	}
	return []string{
		"-chardev", "socket,id=guestwire-chr,path=" + escape(nic.Socket),
		"-netdev", "vhost-user,id=" + netdevID + ",chardev=guestwire-chr",
	}
}

// device adds the NIC, unless the user has placed one on our netdev himself.
func device(binary string, a args, version int, nic NIC) []string {
	for _, v := range a.values("device") {
		if properties(v)["netdev"] == netdevID {
			return nil
		}
	}
	d := driver(binary, a) + ",netdev=" + netdevID
	if !nic.Stream {
		d += vectors(driver(binary, a), a, version)
	}
	if nic.MTU != 0 && nic.MTU != 1500 {
		d += ",host_mtu=" + strconv.Itoa(nic.MTU)
	}
	return []string{"-device", d}
}

// driver is the virtio-net device of the machine's bus.
func driver(binary string, a args) string {
	if strings.Contains(filepath.Base(binary), "s390x") {
		return "virtio-net-ccw"
	}
	if microvm(a) {
		return "virtio-net-device"
	}
	return "virtio-net-pci"
}

// vectors is the property that keeps a vhost-user device of an old QEMU from
// crashing under TCG, for devices on PCI.
func vectors(driver string, a args, version int) string {
	if strings.HasSuffix(driver, "-pci") && version > 0 && version < 8 && !usesKVM(a) {
		return ",vectors=0"
	}
	return ""
}

func microvm(a args) bool {
	for _, v := range a.values("machine", "M") {
		if p := properties(v); p[""] == "microvm" || p["type"] == "microvm" {
			return true
		}
	}
	return false
}

func usesKVM(a args) bool {
	if a.has("enable-kvm") {
		return true
	}
	for _, v := range a.values("accel") {
		if properties(v)[""] == "kvm" {
			return true
		}
	}
	for _, v := range a.values("machine", "M") {
		if strings.HasPrefix(properties(v)["accel"], "kvm") {
			return true
		}
	}
	return false
}
