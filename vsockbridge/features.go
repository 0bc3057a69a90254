package vsockbridge

import (
	"encoding/binary"

	"guestwire/vring/vhostuser"
)

// Feature bits of the device (virtio 1.3, 5.10.3), as masks.
const (
	FStream          uint64 = 1 << 0 // stream sockets
	FSeqPacket       uint64 = 1 << 1 // sequenced packets
	FNoImpliedStream uint64 = 1 << 2 // FSeqPacket alone does not imply stream sockets
)

const allFeatures = FStream | FSeqPacket | FNoImpliedStream |
	vhostuser.RingFIndirectDesc | vhostuser.RingFEventIdx | vhostuser.FInOrder | vhostuser.FVersion1

// types are the socket types of a set of negotiated features. Stream sockets
// are there unless the driver has said that they are not: without any of the
// three bits, and with FSeqPacket alone, they are implied (5.10.3). Linux knows
// only FSeqPacket.
type types struct{ stream, seqpacket bool }

func typesOf(features uint64) types {
	return types{
		stream:    features&FStream != 0 || features&FNoImpliedStream == 0,
		seqpacket: features&FSeqPacket != 0,
	}
}

// Config space (5.10.4) is le64 guest_cid.
const configSize = 8

// ReadConfig implements vhostuser.Device.
func (d *Device) ReadConfig(b []byte, off int) bool {
	if off < 0 || off > configSize || len(b) > configSize-off {
		return false
	}
	var space [configSize]byte
	binary.LittleEndian.PutUint64(space[:], d.cfg.CID)
	copy(b, space[off:])
	return true
}

// WriteConfig implements vhostuser.Device. The driver may write nothing.
func (d *Device) WriteConfig([]byte, int) bool { return false }

// SetMTU and RARP implement vhostuser.Device; they are for network devices.
func (d *Device) SetMTU(uint16) bool { return false }
func (d *Device) RARP([6]byte)       {}
