package vring

import "guestwire/vring/guestmem"

// MaxSize is the largest size of a split ring (virtio 1.3, 2.7).
const MaxSize = 32768

// Config describes one ring to NewDeviceQueue and NewDriverQueue.
type Config struct {
	Index int    // number of the queue, for BrokenError
	Size  uint16 // entries, a power of two, 1..MaxSize
	Mem   *guestmem.Table

	// Host views of the three areas, of full length for Size: 16*Size, 6+2*Size
	// and 6+8*Size bytes. Whoever knows how the frontend addresses rings has
	// translated them.
	Desc, Avail, Used []byte

	// Base is the avail index to start from (SET_VRING_BASE). The used index is
	// read from used.idx in memory.
	Base uint16

	EventIdx, Indirect, InOrder bool // negotiated ring features

	CallFD int // device: signalled to call the driver; driver: the kick. -1: none
	ErrFD  int // signalled when the queue breaks. -1: none

	Log     *guestmem.Log // dirty log of a migration, nil: off
	LogAddr uint64        // guest address of the used ring, for the log
	LogUsed bool          // writes to the used ring are logged (VHOST_VRING_F_LOG)

	// Tables is memory for the driver side's indirect tables and TablesGPA its
	// guest address; it is divided evenly among the Size entries. Without it the
	// driver chains. The device side has no use for it.
	Tables    []byte
	TablesGPA uint64
}
