// Package hostside is what a guest's vsock device meets on the host: the sockets
// that serve the guest's connections, and the listening sockets by which the
// host's processes reach the guest.
//
// # The hybrid protocol, as Firecracker has it
//
//	client -> UDSPath             CONNECT <guest port>\n
//	client <- UDSPath             OK <host port>\n            when the guest has accepted
//	guest's connect to port N     -> UDSPath_N
//
// UDSPath_seqpacket is the same for sockets that keep messages apart: the line is
// the first message (the convention that Cloud Hypervisor's issue 8894 proposes).
// UDSPath_N is of whichever type the guest asks for. The line may come in
// pieces; what the client sends behind it stays in the socket, for the guest. A
// refusal closes the connection without a word. See OKLine for clients that
// cannot cope with the answer.
//
// # Rules
//
// ParseListen and ParseConnect: an address on the host (UNIX, TCP, the host
// kernel's vsock) joined with one port of the guest, without any line. For a
// guest's connection a rule goes before UDSPath_N.
//
// # Who calls it
//
// cmd parses rules before there is a loop. New runs before the loop or on it,
// everything else on the loop: the sockets and timers call the Host, the device
// calls Dial, Accepted and Refused. None of it is on the data path: a socket that
// the guest has accepted is the device's.
//
// # What it trusts
//
// The configuration is the administrator's: it is checked for mistakes. Clients
// may be anybody whom the socket's mode lets in: they are held to the line, to a
// time and to a number. The guest chooses ports, which become a path only as a
// decimal number behind UDSPath_; such a path is refused when it is no socket
// itself (a symbolic link is none), so that a guest's number leads to nothing but
// sockets in that folder. A rule's path is followed wherever it leads.
//
// # States of a client
//
//	reading   (hybrid) until its line is complete; 2 s
//	asking    the device has asked the guest, which has as long as the device gives
//	retrying  the guest has refused or is not there, and is asked again after 20 ms,
//	          40 ms .. 500 ms while the listener's wait= lasts
//
// It ends by being handed over, or closed. A client that has closed in the
// meantime is given up, unless it has sent something: that is delivered, as any
// server would have got it. A half close is nothing special, since the device
// sees it when it reads.
//
// # Limits
//
// 32 bytes and 2 s for a line. Per listener 64 clients that have not been handed
// over; more wait in its backlog of 4096 (the kernel cuts it to somaxconn), and take turns of 16. Out of descriptors
// what waits is closed, by means of a descriptor kept for that, and the listener
// rests for 100 ms. UDSPath has at most 96 bytes, to leave room for what follows
// it. At most 1 h of wait=.
//
// # What it deliberately does not do
//
// It does not relay. No wait for whoever is slow to accept on the host (Dial
// says EAGAIN). No changes of rules at run time. Names are resolved once, by a
// function that New is given, and only one address of each is used. The host
// kernel's vsock is used where a rule says so, and never looked for otherwise.
package hostside
