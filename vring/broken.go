package vring

import "fmt"

// Reason says why a queue broke.
type Reason uint8

const (
	AvailTooFar Reason = iota + 1
)

func (r Reason) String() string { return fmt.Sprintf("reason %d", uint8(r)) }

// BrokenError says which queue broke, why, and the value that did it.
type BrokenError struct {
	Queue  int
	Reason Reason
	Detail uint64
}

func (e *BrokenError) Error() string {
	return fmt.Sprintf("queue %d broken: %v (%#x)", e.Queue, e.Reason, e.Detail)
}
