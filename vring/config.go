package vring

import "guestwire/vring/guestmem"

// MaxSize is the largest queue size of a split ring (virtio 1.3, 2.7).
const MaxSize = 32768

// Config describes one ring to NewDeviceQueue and NewDriverQueue.
type Config struct {
	Index int    // number of the queue, for BrokenError
	Size  uint16 // entries, a power of two, 1..MaxSize
	Mem   *guestmem.Table

	// Host views of the three areas, full length for Size: 16*Size, 6+2*Size
	// and 6+8*Size bytes.
	Desc, Avail, Used []byte

	Base uint16 // avail index to start from

	EventIdx, Indirect, InOrder bool // negotiated ring features

	CallFD, ErrFD int // -1: none

	Log     *guestmem.Log // dirty log, nil: off
	LogAddr uint64        // guest address of the used ring, for the log
	LogUsed bool          // VHOST_VRING_F_LOG: writes to the used ring are logged
}
