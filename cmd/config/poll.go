package config

import (
	"time"

	"guestwire/vring/eventloop"
)

// maxPoll bounds --poll DURATION: who waits longer does not wait for an answer.
const maxPoll = 10 * time.Millisecond

// poll reads --poll.
func poll(s string) (eventloop.Poll, error) {
	switch s {
	case "", "auto":
		return eventloop.PollAuto, nil
	case "off":
		return eventloop.Poll{}, nil
	case "on":
		return eventloop.Poll{For: eventloop.PollAlways}, nil
	}
	if d, err := time.ParseDuration(s); err == nil && d > 0 && d <= maxPoll {
		return eventloop.Poll{For: d}, nil
	}
	return eventloop.Poll{}, wrong("--poll", s, "give auto, on, off, or how long to look for more before sleeping, like 50us (at most %v)", maxPoll)
}
