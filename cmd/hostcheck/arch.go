package hostcheck

import "runtime"

// qemuArch is the name that QEMU gives to this machine's architecture.
func qemuArch() string {
	switch runtime.GOARCH {
	case "amd64":
		return "x86_64"
	case "arm64":
		return "aarch64"
	case "386":
		return "i386"
	}
	return runtime.GOARCH
}
