package guest

import "guestwire/vring/eventloop"

// Budget is a token bucket. The zero value is full and allows DefaultRate.
type Budget struct {
	Rate  int // tokens per second, 0: DefaultRate
	Burst int // tokens at most, 0: DefaultBurst

	used int            // tokens taken and not refilled
	at   eventloop.Time // up to when refilling was counted
}

// What a guest gets of ICMP errors: enough for any traceroute and for a program
// that probes ports, too little to keep the loop busy with (RFC 1812 4.3.2.8,
// RFC 4443 2.4 (f)).
const (
	DefaultRate  = 1000
	DefaultBurst = 200
)

// Take takes a token if there is one.
func (b *Budget) Take(now eventloop.Time) bool {
	rate, burst := b.Rate, b.Burst
	if rate <= 0 {
		rate = DefaultRate
	}
	if burst <= 0 {
		burst = DefaultBurst
	}
	const second = 1_000_000_000
	step := eventloop.Time(second / rate)
	if gap := now - b.at; gap >= step*eventloop.Time(burst) || gap < 0 {
		b.used, b.at = 0, now
	} else if n := gap / step; n > 0 {
		b.used = max(0, b.used-int(n))
		b.at += n * step
	}
	if b.used >= burst {
		return false
	}
	b.used++
	return true
}
