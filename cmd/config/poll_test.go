package config

import (
	"strings"
	"testing"
	"time"

	"guestwire/vring/eventloop"
)

func TestPoll(t *testing.T) {
	for s, want := range map[string]eventloop.Poll{
		"": eventloop.PollAuto, "auto": eventloop.PollAuto, "off": {}, "on": {For: eventloop.PollAlways},
		"50us": {For: 50 * time.Microsecond}, "10ms": {For: 10 * time.Millisecond},
	} {
		n, err := Resolve(&Options{SocketPath: "/s", FD: -1, Poll: s}, nil)
		if err != nil || n.Poll != want {
			t.Errorf("net --poll %q: %v, %v", s, n, err)
		}
		v, err := ResolveVsock(&VsockOptions{SocketPath: "/s", FD: -1, GuestCID: 3, UDSPath: "/u", Poll: s})
		if err != nil || v.Poll != want {
			t.Errorf("vsock --poll %q: %v, %v", s, v, err)
		}
	}
	for _, s := range []string{"yes", "50", "-1us", "0s", "11ms", "1h"} {
		if _, err := Resolve(&Options{SocketPath: "/s", FD: -1, Poll: s}, nil); err == nil || !strings.Contains(err.Error(), "--poll") {
			t.Errorf("--poll %q: %v", s, err)
		}
	}
}
