package eventloop

// Expirer is told when a timer runs out.
type Expirer interface{ Expired(cookie uint32) }

// TimerID names a timer of one wheel; 0 is none.
type TimerID uint32

// Wheel is a timer wheel.
type Wheel struct{ now Time }

// NewWheel returns a wheel whose time is now.
func NewWheel(now Time) *Wheel { return &Wheel{now: now} }

// New makes a stopped timer.
func (w *Wheel) New(e Expirer, cookie uint32) TimerID { return 0 }

// Set arms or re-arms a timer at an absolute time.
func (w *Wheel) Set(id TimerID, at Time) {}

// Stop disarms a timer.
func (w *Wheel) Stop(id TimerID) {}

// Free gives a timer back.
func (w *Wheel) Free(id TimerID) {}

// Armed says whether the timer is running.
func (w *Wheel) Armed(id TimerID) bool { return false }

// Advance moves time on and calls what has expired.
func (w *Wheel) Advance(now Time) { w.now = now }

// Next returns when Advance has something to do next.
func (w *Wheel) Next() (Time, bool) { return 0, false }

// Now returns the time of the last Advance.
func (w *Wheel) Now() Time { return w.now }
