package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/packet"
)

// Host has the sockets that serve a guest's connections to the host.
type Host interface {
	// Dial opens the socket that is to serve guest's REQUEST for port. It never
	// blocks: connecting says that the connect is under way, and the device waits
	// for it. The descriptor is non-blocking, close-on-exec, and the device's from
	// then on. With an errno there is none and the guest is refused at once.
	Dial(guest uint64, port uint32, t packet.Type) (fd int, connecting bool, errno unix.Errno)
}

// Initiator asked the device for a connection to a guest's port. One of the two
// is called, on the loop and never from within Connect, once per cookie, unless
// Cancel came first.
type Initiator interface {
	// Accepted says that the guest has accepted. The initiator writes to its socket
	// what must go first and hands it over (non-blocking; the device's from then
	// on). !ok: its client has gone; the device resets the connection.
	Accepted(cookie uint32, hostPort uint32) (fd int, ok bool)

	// Refused says that there will be no connection: ECONNREFUSED when the guest
	// has refused, ETIMEDOUT when it did not answer, ECONNRESET when it went away.
	Refused(cookie uint32, why unix.Errno)
}
