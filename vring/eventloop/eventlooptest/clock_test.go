package eventlooptest

import (
	"slices"
	"testing"
	"time"

	"guestwire/vring/eventloop"
)

type log struct {
	d  *Driver
	at []time.Duration
}

func (l *log) Expired(uint32) {
	l.at = append(l.at, time.Duration(l.d.Now())-time.Hour)
	if l.d.Now() != l.d.Wheel.Now() {
		panic("two times")
	}
}

func TestDriver(t *testing.T) {
	d := NewDriver()
	l := &log{d: d}
	for _, at := range []time.Duration{3 * time.Second, 90 * time.Millisecond, time.Hour} {
		d.Wheel.Set(d.Wheel.New(l, 0), d.Now()+eventloop.Time(at))
	}
	if !d.Next(time.Minute) || d.Now() != eventloop.Time(time.Hour+90*time.Millisecond) {
		t.Error("first timer")
	}
	d.Advance(5 * time.Second)
	if d.Now() != eventloop.Time(time.Hour+5090*time.Millisecond) {
		t.Errorf("now %v", time.Duration(d.Now()))
	}
	if d.Next(time.Minute) {
		t.Error("a timer within the minute")
	}
	d.Advance(2 * time.Hour)
	if want := []time.Duration{90 * time.Millisecond, 3 * time.Second, time.Hour}; !slices.Equal(l.at, want) {
		t.Errorf("ran at %v, want %v", l.at, want)
	}
}
