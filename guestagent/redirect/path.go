package redirect

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/relay"
)

// Path is how the bytes of a flow are moved.
type Path uint8

const (
	Auto     Path = iota // the fastest that is correct
	Sockmap              // by the kernel, from socket to socket
	Splice               // by the kernel, through a pipe
	Copy                 // through a buffer of the agent's
	Messages             // the same, message by message
	paths
)

var pathNames = [paths]string{"auto", "sockmap", "splice", "copy", "messages"}

func (p Path) String() string { return pathNames[p] }

// wanted says that a rule may ask for it.
func (p Path) wanted() bool { return p < Messages }

// shape is what the choice of a path depends on. One end of a flow is a vsock.
type shape struct {
	local, vsock relay.Kind // what the ends carry
	family       int        // of the local end's socket
	answers      bool       // bytes go to the local end too
	want         Path
	sockmap      error // why the kernel cannot; nil: it can
}

// choose returns the path, and if that is not the one that was wanted, or could
// have been hoped for, why.
func choose(s shape) (p Path, why string) {
	bytes := s.vsock == relay.Stream && (s.local == relay.Stream || s.local == relay.Datagram)
	next := Splice
	switch {
	case !bytes:
		next = Messages
	case s.local == relay.Datagram:
		next = Copy // there is no splicing from datagrams
	}
	eligible := bytes && s.family == unix.AF_UNIX && (s.local == relay.Stream || !s.answers)
	switch {
	case s.want == Copy && next == Splice:
		return Copy, ""
	case s.want == Splice && next != Splice:
		return next, "only streams of bytes are spliced"
	case s.want == Splice || s.want == Copy || s.want == Auto && next == Splice:
		return next, ""
	case s.want == Sockmap && !eligible:
		return next, "only a UNIX stream, or UNIX datagrams with raw, are redirected to a vsock stream"
	case !eligible:
		return next, ""
	case s.sockmap != nil:
		return next, fmt.Sprintf("no sockmap: %v", s.sockmap)
	}
	return Sockmap, ""
}
