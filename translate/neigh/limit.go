package neigh

import (
	"time"

	"guestwire/vring/eventloop"
)

// Rate limit of answers.
const (
	burst    = 256
	perToken = eventloop.Time(time.Second) / 256
)

// bucket is a token bucket.
type bucket struct {
	tokens int
	last   eventloop.Time // up to when tokens were granted
}

func (b *bucket) take(now eventloop.Time) bool {
	if d := now - b.last; d >= perToken {
		granted := d / perToken
		b.tokens = int(min(burst, eventloop.Time(b.tokens)+granted))
		b.last += granted * perToken
	}
	if b.tokens == 0 {
		return false
	}
	b.tokens--
	return true
}
