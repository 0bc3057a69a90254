package supervisor

import "time"

const (
	pauseMin = 100 * time.Millisecond
	pauseMax = 10 * time.Second
	healthy  = 30 * time.Second // a worker that was ready for so long has not failed to start
)

// backoff is how long a job waits between the death of its worker and the next.
type backoff struct{ pause time.Duration }

// next returns the pause after a worker that was ready for the time given, 0 if
// it never was.
func (b *backoff) next(served time.Duration) time.Duration {
	if served >= healthy || b.pause == 0 {
		b.pause = pauseMin
	} else {
		b.pause = min(2*b.pause, pauseMax)
	}
	return b.pause
}
