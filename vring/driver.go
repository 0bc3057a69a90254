package vring

import "errors"

// DriverSeg is one buffer that the driver side adds to a chain.
type DriverSeg struct {
	GPA   uint64
	Len   uint32
	Write bool // the device writes it
}

// DriverQueue is the driver side of one split ring.
type DriverQueue struct{}

func NewDriverQueue(c Config) (*DriverQueue, error) { return nil, errors.New("vring: not implemented") }

func (d *DriverQueue) Add(segs []DriverSeg, cookie uint32) (head uint16, ok bool) { return 0, false }
func (d *DriverQueue) Publish()                                                   {}
func (d *DriverQueue) Used() (cookie, written uint32, ok bool)                    { return 0, 0, false }
func (d *DriverQueue) ArmCall() (more bool)                                       { return false }
func (d *DriverQueue) DisarmCall()                                                {}
func (d *DriverQueue) Free() int                                                  { return 0 }
