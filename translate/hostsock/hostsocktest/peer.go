package hostsocktest

import (
	"net/netip"
	"syscall"

	"guestwire/translate/hostsock"
)

// Peer is the far end of a TCP connection of the code under test, in the hands
// of the test.
type Peer struct {
	k *Kernel
	s *socket // the far end; s.far is the code's own
}

// Server is somebody who listens elsewhere.
type Server struct {
	k       *Kernel
	addr    netip.AddrPort
	backlog []*socket
}

// Serve has connects to addr succeed.
func (k *Kernel) Serve(addr netip.AddrPort) *Server {
	s := &Server{k: k, addr: addr}
	k.servers[addr] = s
	return s
}

// Accept returns the far end of the oldest connection not yet taken. The test
// fails when there is none.
func (s *Server) Accept() *Peer {
	s.k.t.Helper()
	if len(s.backlog) == 0 {
		s.k.t.Fatalf("hostsocktest: nobody has connected to %v", s.addr)
	}
	p := &Peer{s.k, s.backlog[0]}
	s.backlog = s.backlog[1:]
	return p
}

// Waiting returns how many connections Accept would return.
func (s *Server) Waiting() int { return len(s.backlog) }

// Connect comes from client to a listening socket of the code under test, which
// will Accept it. The test fails when nobody listens at local.
func (k *Kernel) Connect(client, local netip.AddrPort) *Peer {
	k.t.Helper()
	l := k.listener(local)
	if l == nil {
		k.t.Fatalf("hostsocktest: nobody listens at %v", local)
	}
	near, far := newSocket(k, hostsock.TCP), newSocket(k, hostsock.TCP)
	join(near, far)
	near.local, near.remote = local, client
	far.local, far.remote = client, local
	near.state, far.state = connected, connected
	l.backlog = append(l.backlog, near)
	l.wake(1) // In
	return &Peer{k, far}
}

// Peer returns the far end of fd, open or closed by now.
func (k *Kernel) Peer(fd hostsock.FD) *Peer {
	k.t.Helper()
	s := k.must(fd)
	if s.far == nil {
		k.t.Fatalf("hostsocktest: %d has no far end", fd)
	}
	return &Peer{k, s.far}
}

// FD returns the code's descriptor of this connection, None before Accept.
func (p *Peer) FD() hostsock.FD { return p.s.far.fd }

// Addr returns the peer's own address.
func (p *Peer) Addr() netip.AddrPort { return p.s.local }

// Connect decides a connect in flight: 0 for success.
func (p *Peer) Connect(e syscall.Errno) { p.s.far.decide(e) }

// Send sends b, as much as the other's receive buffer takes, and returns how
// much that was.
func (p *Peer) Send(b []byte) int {
	n, _ := p.s.write([][]byte{b})
	return n
}

// Read takes up to n bytes of what has been written to this peer.
func (p *Peer) Read(n int) []byte {
	b := make([]byte, min(n, len(p.s.in.data)))
	if len(b) > 0 {
		p.s.read([][]byte{b}, 0, false)
	}
	return b
}

// ReadAll takes everything that has been written to this peer.
func (p *Peer) ReadAll() []byte { return p.Read(len(p.s.in.data)) }

// Unread returns how much Read could take.
func (p *Peer) Unread() int { return len(p.s.in.data) }

// CloseWrite sends FIN; the peer goes on reading.
func (p *Peer) CloseWrite() { p.s.shutdown() }

// Close closes: FIN, or RST when something is unread. What is written to the
// peer from now on is answered with RST.
func (p *Peer) Close() { p.s.end(false) }

// Reset sends RST.
func (p *Peer) Reset() { p.s.end(true) }

// SawFIN says that the code under test has finished sending.
func (p *Peer) SawFIN() bool { return p.s.in.fin }

// SawRST says that the code under test has reset the connection.
func (p *Peer) SawRST() bool { return p.s.reset }

// Undelivered returns how much of what was sent the code has not consumed.
func (p *Peer) Undelivered() int { return len(p.s.out.data) }

// SetSendBuffer sets how many bytes the code under test can write before this
// peer reads.
func (p *Peer) SetSendBuffer(n int) {
	p.s.in.limit = n
	p.s.far.space()
}

// SetReceiveBuffer sets how many bytes Send puts into the code's socket.
func (p *Peer) SetReceiveBuffer(n int) { p.s.out.limit = n }

// SetInfo sets what Info says about the code's socket. SendBuffer 0 is the true
// one; Unacked is always true.
func (p *Peer) SetInfo(i hostsock.Info) { p.s.far.info = i }
