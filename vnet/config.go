package vnet

import "encoding/binary"

// Layout of config space (virtio 1.3, 5.1.4): mac, status, max_virtqueue_pairs,
// mtu; what follows belongs to features that are not offered and reads as zero.
const (
	cfgMAC      = 0
	cfgStatus   = 6
	cfgMaxPairs = 8
	cfgMTU      = 10

	// configSize is the most a frontend may ask for (VHOST_USER_MAX_CONFIG_SIZE):
	// they ask for their own idea of the structure, which grows with the years.
	configSize = 256

	statusLinkUp = 1
)

// ReadConfig implements vhostuser.Device.
func (d *Device) ReadConfig(b []byte, off int) bool {
	if off < 0 || off > configSize || len(b) > configSize-off {
		return false
	}
	var space [configSize]byte
	copy(space[cfgMAC:], d.cfg.MAC[:])
	binary.LittleEndian.PutUint16(space[cfgStatus:], statusLinkUp)
	binary.LittleEndian.PutUint16(space[cfgMaxPairs:], 1)
	binary.LittleEndian.PutUint16(space[cfgMTU:], uint16(d.mtu))
	copy(b, space[off:])
	return true
}

// WriteConfig implements vhostuser.Device. No field may be written by a driver
// of today (virtio 1.3, 5.1.4: read-only).
func (d *Device) WriteConfig([]byte, int) bool { return false }

// SetMTU implements vhostuser.Device: the frontend says what MTU it has told the
// guest. Below 68 (RFC 791) it cannot be one.
func (d *Device) SetMTU(mtu uint16) bool {
	if mtu < minMTU {
		return false
	}
	d.mtu = int(mtu)
	return true
}

// RARP implements vhostuser.Device. After a migration a bridge would have to
// learn where the guest is now; behind L4 translation nobody knows it by its MAC
// address.
func (d *Device) RARP([6]byte) {}
