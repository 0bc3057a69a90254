package vring

import (
	"errors"

	"guestwire/vring/guestmem"
)

// Chain is one descriptor chain, validated and translated.
type Chain struct {
	Head               uint16
	Readable, Writable [][]byte
	ReadLen, WriteLen  uint32
}

// QueueStats counts what a queue did since it was made.
type QueueStats struct {
	Pops, Pushes, Publishes uint64
	Calls, CallsSuppressed  uint64
	KicksWanted             uint64
}

// DeviceQueue is the device side of one split ring.
type DeviceQueue struct{}

func NewDeviceQueue(c Config) (*DeviceQueue, error) { return nil, errors.New("vring: not implemented") }

func (q *DeviceQueue) Pop(c *Chain) bool                              { return false }
func (q *DeviceQueue) PopBatch(cs []Chain) int                        { return 0 }
func (q *DeviceQueue) Rewind(n int)                                   {}
func (q *DeviceQueue) Push(head uint16, written uint32)               {}
func (q *DeviceQueue) Publish()                                       {}
func (q *DeviceQueue) ArmKick() (more bool)                           { return false }
func (q *DeviceQueue) DisarmKick()                                    {}
func (q *DeviceQueue) Available() int                                 { return 0 }
func (q *DeviceQueue) Broken() *BrokenError                           { return nil }
func (q *DeviceQueue) Break(reason Reason)                            {}
func (q *DeviceQueue) LastAvail() uint16                              { return 0 }
func (q *DeviceQueue) SetCall(fd int)                                 {}
func (q *DeviceQueue) SetErr(fd int)                                  {}
func (q *DeviceQueue) SetLog(l *guestmem.Log, addr uint64, used bool) {}
func (q *DeviceQueue) Stats() QueueStats                              { return QueueStats{} }
func (q *DeviceQueue) SetMem(mem *guestmem.Table, desc, avail, used []byte) error {
	return errors.New("vring: not implemented")
}
