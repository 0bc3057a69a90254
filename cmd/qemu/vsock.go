package qemu

import (
	"path/filepath"
	"strings"
)

// vsockID is the id of our vsock device's chardev, under which users may refer
// to it.
const vsockID = "guestwire-vsock"

// VsockHindrance says why the VM cannot have our vsock device, "" if it can.
func VsockHindrance(command []string) string {
	if len(command) == 0 {
		return ""
	}
	if strings.Contains(filepath.Base(command[0]), "s390x") {
		return "QEMU has no vhost-user vsock device for s390x"
	}
	for _, v := range args(command[1:]).values("device") {
		if p := properties(v); strings.Contains(p[""], "vsock") && p["chardev"] != vsockID {
			return "the VM has a vsock device of its own already (-device " + v + ")"
		}
	}
	return ""
}

// vsock adds the chardev of our vsock device, and the device unless the user has
// placed it himself.
func vsock(a args, version int, socket string) []string {
	out := []string{"-chardev", "socket,id=" + vsockID + ",path=" + escape(socket)}
	for _, v := range a.values("device") {
		if properties(v)["chardev"] == vsockID {
			return out
		}
	}
	d := "vhost-user-vsock-pci"
	if microvm(a) {
		d = "vhost-user-vsock-device"
	}
	return append(out, "-device", d+",chardev="+vsockID+vectors(d, a, version))
}
