package vhostuser

import (
	"fmt"

	"guestwire/vring/guestmem"
)

// RingSetup is what a Frontend tells about a ring to have it started.
type RingSetup struct {
	Size              uint32
	Desc, Avail, Used uint64 // user addresses
	Log               uint64 // guest address of the used ring; with LogUsed its writes are logged
	LogUsed           bool
	Base              uint16
	Kick, Call, Err   int // -1: none
}

// Negotiate begins a session as QEMU does: it acknowledges what of features and
// protocol the backend offers, and returns what it acknowledged. NeedReply is
// set if REPLY_ACK is among it.
func (f *Frontend) Negotiate(features, protocol uint64) (uint64, uint64, error) {
	offer, err := f.GetFeatures()
	if err != nil {
		return 0, 0, err
	}
	features &= offer
	if offer&VhostUserFProtocolFeatures != 0 && protocol != 0 {
		has, err := f.GetProtocolFeatures()
		if err != nil {
			return 0, 0, err
		}
		protocol &= has
		if err := f.SetProtocolFeatures(protocol); err != nil {
			return 0, 0, err
		}
		features |= VhostUserFProtocolFeatures
		f.NeedReply = protocol&ProtocolFReplyAck != 0
	} else {
		protocol = 0
	}
	if err := f.SetOwner(); err != nil {
		return 0, 0, err
	}
	return features, protocol, f.SetFeatures(features)
}

// StartRing sets ring i up and starts it, in QEMU's order. With
// VhostUserFProtocolFeatures it still has to be enabled.
func (f *Frontend) StartRing(i int, s RingSetup) error {
	flags := uint32(0)
	if s.LogUsed {
		flags = vringAddrLog
	}
	steps := []func() error{
		func() error { return f.SetVringNum(i, s.Size) },
		func() error { return f.SetVringBase(i, s.Base) },
		func() error {
			return f.SetVringAddr(VringAddr{Index: uint32(i), Flags: flags, Desc: s.Desc, Used: s.Used, Avail: s.Avail, Log: s.Log})
		},
		func() error { return f.SetVringErr(i, s.Err) },
		func() error { return f.SetVringKick(i, s.Kick) },
		func() error { return f.SetVringCall(i, s.Call) },
	}
	for n, step := range steps {
		if err := step(); err != nil {
			return fmt.Errorf("ring %d, step %d: %w", i, n, err)
		}
	}
	return nil
}

// Share sends guest memory the way the session has agreed on: as a table, or
// with ProtocolFConfigureMemSlots region by region.
func (f *Frontend) Share(protocol uint64, rs []guestmem.Region) error {
	if protocol&ProtocolFConfigureMemSlots == 0 {
		return f.SetMemTable(rs)
	}
	for _, r := range rs {
		if err := f.AddMemReg(r); err != nil {
			return err
		}
	}
	return nil
}
