// Package hostsocktest is a scripted kernel: a hostsock.Host whose sockets live
// in memory, for tests of the translators.
//
// A test makes one with New, hands it to the code under test as its Host, plays
// the other ends itself, and delivers readiness when it wants to:
//
//	k := hostsocktest.New(t)
//	srv := k.Serve(netip.MustParseAddrPort("198.51.100.7:80"))
//	... code under test dials and watches ...
//	p := srv.Accept()     // the far end of the connection
//	p.Send([]byte("hi"))
//	k.Run()               // Ready is called until nothing is left to report
//
// Far ends: a Server accepts what is dialled to its address, Connect comes in to
// a listening socket, Peer finds the far end of a descriptor (also while the
// connect is in flight: a Dial to an address without a Server waits until
// Peer.Connect decides). Rule makes an address refuse or be unreachable.
// Datagram sockets have no far end: Sent takes what was sent, Deliver and
// DeliverError bring what arrives.
//
// Faults: FailNext and FailAt make the n-th call of any method return an errno,
// SetSendBuffer makes writes short, NoPeek takes SO_PEEK_OFF away. Use of a
// descriptor after Close is an error of the test.
//
// Readiness is epoll's: level-triggered sources are called in every Pump while
// their condition holds, edge-triggered ones when something has happened since
// they were called, with everything that holds then. Run fails the test when the
// code under test would spin.
//
// What makes the fake worth trusting is Conformance, which passes on it and on
// hostsock.Kernel alike.
//
// Not modelled: time (everything written has arrived and is acknowledged when
// the peer reads it), segment boundaries, routing, port permissions.
package hostsocktest
