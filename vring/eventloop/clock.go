package eventloop

import "time"

// Time is a monotonic instant in nanoseconds. It has no relation to the
// calendar; only differences mean something.
type Time int64

// Clock says what time it is.
type Clock interface{ Now() Time }

// NewClock returns the monotonic clock of the machine. It stands still while
// the machine sleeps, so a suspended host is no storm of expired timers. This
// is the one place in the data rooms where time comes from.
func NewClock() Clock { return &monotonic{start: time.Now()} }

// monotonic measures from a start long enough ago that no Time is 0 or negative.
type monotonic struct{ start time.Time }

// Now reads the clock through the vDSO.
func (m *monotonic) Now() Time { return Time(time.Hour + time.Since(m.start)) }
