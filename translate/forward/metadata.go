package forward

import "guestwire/translate/wire"

// isMetadata says whether an address is one that cloud providers serve instance
// metadata, and with it credentials of the host's machine, on. A guest must not
// be able to act as its host.
func isMetadata(a wire.Addr) bool {
	if a.Is4() {
		if a.IsLinkLocal() {
			return true // 169.254.0.0/16: 169.254.169.254, 169.254.170.2, ...
		}
		switch a.As4() {
		case [4]byte{168, 63, 129, 16}, // Azure's wire server
			[4]byte{100, 100, 100, 200}, // Alibaba Cloud
			[4]byte{192, 0, 0, 192}:     // Oracle Cloud
			return true
		}
		return false
	}
	// fd00:ec2::/32 holds AWS's link-local services (metadata is ::254), and
	// fd20:ce::254 is Google's metadata server.
	return a[0] == 0xfd && a[1] == 0x00 && a[2] == 0x0e && a[3] == 0xc2 ||
		a == wire.Addr{0: 0xfd, 1: 0x20, 3: 0xce, 14: 0x02, 15: 0x54}
}
