package redirect

import (
	"errors"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/relay"
)

func TestChoose(t *testing.T) {
	old := errors.New("too old")
	for _, tt := range []struct {
		name         string
		local, vsock relay.Kind
		family       int
		answers      bool
		want         Path
		sockmap      error
		path         Path
		why          string // part of it
	}{
		{"raw datagrams", relay.Datagram, relay.Stream, unix.AF_UNIX, false, Auto, nil, Sockmap, ""},
		{"raw datagrams, old kernel", relay.Datagram, relay.Stream, unix.AF_UNIX, false, Auto, old, Copy, "too old"},
		{"raw datagrams, copied", relay.Datagram, relay.Stream, unix.AF_UNIX, false, Copy, nil, Copy, ""},
		{"raw datagrams, no splice", relay.Datagram, relay.Stream, unix.AF_UNIX, false, Splice, nil, Copy, "only streams"},
		{"raw datagrams of the host", relay.Datagram, relay.Stream, unix.AF_UNIX, true, Auto, nil, Copy, ""},
		{"framed datagrams", relay.Datagram, relay.Framed, unix.AF_UNIX, false, Auto, nil, Messages, ""},
		{"framed datagrams, no sockmap", relay.Datagram, relay.Framed, unix.AF_UNIX, false, Sockmap, nil, Messages, "only a UNIX stream"},
		{"seqpacket", relay.Seqpacket, relay.Seqpacket, unix.AF_UNIX, true, Auto, nil, Messages, ""},
		{"seqpacket, no sockmap", relay.Seqpacket, relay.Seqpacket, unix.AF_UNIX, true, Sockmap, nil, Messages, "only a UNIX stream"},
		{"seqpacket, no splice", relay.Seqpacket, relay.Seqpacket, unix.AF_UNIX, true, Splice, nil, Messages, "only streams"},
		{"stream", relay.Stream, relay.Stream, unix.AF_UNIX, true, Auto, nil, Splice, ""},
		{"stream, old kernel", relay.Stream, relay.Stream, unix.AF_UNIX, true, Auto, old, Splice, ""},
		{"stream, sockmap", relay.Stream, relay.Stream, unix.AF_UNIX, true, Sockmap, nil, Sockmap, ""},
		{"stream, sockmap, old kernel", relay.Stream, relay.Stream, unix.AF_UNIX, true, Sockmap, old, Splice, "too old"},
		{"stream, copied", relay.Stream, relay.Stream, unix.AF_UNIX, true, Copy, nil, Copy, ""},
		{"TCP", relay.Stream, relay.Stream, unix.AF_INET, true, Auto, nil, Splice, ""},
		{"TCP, no sockmap", relay.Stream, relay.Stream, unix.AF_INET6, true, Sockmap, nil, Splice, "only a UNIX stream"},
	} {
		p, why := choose(shape{tt.local, tt.vsock, tt.family, tt.answers, tt.want, tt.sockmap})
		if p != tt.path || !strings.Contains(why, tt.why) || tt.why == "" && why != "" {
			t.Errorf("%s: %v, %q, want %v, %q", tt.name, p, why, tt.path, tt.why)
		}
	}
}
