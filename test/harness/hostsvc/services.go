package hostsvc

import (
	"fmt"
	"net"

	"guestwire/test/harness/netns"
	"guestwire/test/harness/traffic"
)

// Services is the usual set: traffic servers on Port at the service addresses of peer, at the far host's and on the host's own loopback; DNS at the service
// addresses.
type Services struct {
	Traffic *traffic.Server
	DNS     *DNS
	closers []interface{ Close() error }
}

// Port is where the traffic servers listen.
const Port = 7777

// Start starts the usual set.
func Start(w *netns.World) (*Services, error) {
	s := &Services{Traffic: traffic.NewServer()}
	for _, at := range []struct {
		ns   *netns.NS
		addr string
	}{
		{w.Peer, netns.ServiceV4}, {w.Peer, netns.ServiceV6}, {w.Far, netns.FarV4}, {w.Far, netns.FarV6}, {w.Host, "127.0.0.1"}, {w.Host, "::1"},
	} {
		if err := s.listen(at.ns, at.addr); err != nil {
			s.Close()
			return nil, err
		}
	}
	d, err := StartDNS(w.Peer, netns.ServiceV4, netns.ServiceV6)
	if err != nil {
		s.Close()
		return nil, err
	}
	s.DNS = d
	return s, nil
}

func (s *Services) listen(ns *netns.NS, addr string) error {
	at := net.JoinHostPort(addr, fmt.Sprint(Port))
	l, err := ns.Listen("tcp", at)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, l)
	go s.Traffic.Serve(l)
	u, err := ns.ListenUDP(at)
	if err != nil {
		return err
	}
	s.closers = append(s.closers, u)
	go s.Traffic.ServeUDP(u)
	return nil
}

// Close stops everything.
func (s *Services) Close() {
	for _, c := range s.closers {
		_ = c.Close()
	}
	if s.DNS != nil {
		s.DNS.Close()
	}
}
