package vring

import "fmt"

// Reason says why a queue broke. Everything up to UsedFault is the driver's or
// the frontend's doing; Detail of the BrokenError is given in brackets.
type Reason uint8

const (
	AvailTooFar     Reason = iota + 1 // avail.idx is further ahead than the ring has entries [avail.idx]
	HeadRange                         // head index outside the descriptor table [head]
	NextRange                         // next index outside its table [next]
	Loop                              // chain longer than its table: it loops [head]
	Address                           // buffer not wholly inside guest memory [guest address]
	Order                             // readable buffer behind a writable one [guest address]
	Segments                          // chain cut into more pieces than a queue may hold [pieces]
	IndirectOff                       // indirect descriptor without VIRTIO_F_INDIRECT_DESC [head]
	IndirectNested                    // indirect descriptor inside an indirect table [head]
	IndirectNext                      // indirect descriptor that is also chained [head]
	IndirectLength                    // indirect table empty, over the limit or no multiple of 16 [length]
	IndirectAddress                   // indirect table not wholly inside guest memory [guest address]
	UsedRange                         // device returned a head that is not in flight, or too many (driver side) [id]
	UsedLength                        // device claims more than the chain can hold (driver side) [length]
	UsedFault                         // access to ring or buffer memory faulted
	PushOrder                         // our own device completed a chain out of order [head]
	Stopped                           // broken from outside, by the device or the loop
)

var reasonNames = [...]string{
	AvailTooFar:     "avail index too far ahead",
	HeadRange:       "head index out of range",
	NextRange:       "next index out of range",
	Loop:            "descriptor loop",
	Address:         "buffer outside guest memory",
	Order:           "readable buffer after writable",
	Segments:        "chain too fragmented",
	IndirectOff:     "indirect descriptor not negotiated",
	IndirectNested:  "nested indirect descriptor",
	IndirectNext:    "chained indirect descriptor",
	IndirectLength:  "bad indirect table length",
	IndirectAddress: "indirect table outside guest memory",
	UsedRange:       "used id not in flight",
	UsedLength:      "used length beyond buffer",
	UsedFault:       "memory fault",
	PushOrder:       "chain completed out of order",
	Stopped:         "stopped",
}

func (r Reason) String() string {
	if int(r) < len(reasonNames) && reasonNames[r] != "" {
		return reasonNames[r]
	}
	return fmt.Sprintf("reason %d", uint8(r))
}

// BrokenError says which queue broke, why, and the value that did it.
type BrokenError struct {
	Queue  int
	Reason Reason
	Detail uint64
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("queue %d broken: %v (%#x)", e.Queue, e.Reason, e.Detail)
}
