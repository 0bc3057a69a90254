package eventloop

// Time is a monotonic instant in nanoseconds. It has no relation to the
// calendar; only differences mean something.
type Time int64

// Clock says what time it is.
type Clock interface{ Now() Time }

// NewClock returns the monotonic clock of the machine.
func NewClock() Clock { return monotonic{} }
