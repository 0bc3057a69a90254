package main

import (
	"errors"
	"fmt"
	"path/filepath"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
)

// bed is one daemon with its world, the servers of the clients, and a guest.
type bed struct {
	w      *netns.World
	dns    *hostsvc.DNS
	d      *backend.Daemon
	g      *guest.Guest
	server []*spawn.Process
	dir    string
}

// how a bed is laid.
type how struct {
	kind   string
	uml    bool
	stream bool
	mtu    int
	args   []string
}

func (b *bench) lay(h how) (_ *bed, err error) {
	s := &bed{}
	defer func() {
		if err != nil {
			s.clear()
		}
	}()
	if s.dir, err = b.tempDir(h.kind); err != nil {
		return nil, err
	}
	if s.w, err = netns.New(); err != nil {
		return nil, err
	}
	if s.dns, err = hostsvc.StartDNS(s.w.Peer, netns.ServiceV4, netns.ServiceV6); err != nil {
		return nil, err
	}
	for _, argv := range [][]string{b.lab.Program("iperf3", "-s"), b.lab.Program("netserver", "-D")} {
		p, err := spawn.Start(spawn.Options{NS: s.w.Peer.Name}, argv...)
		if err != nil {
			return nil, err
		}
		s.server = append(s.server, p)
	}
	if h.uml && h.kind == backend.Guestwire {
		h.args = append(h.args, "--profile", "uml")
	}
	s.d, err = backend.Start(b.lab, s.w, backend.Config{Kind: h.kind, Binary: b.binary, Stream: h.stream, MTU: h.mtu, Dir: s.dir, Args: h.args})
	return s, err
}

func (b *bench) boot(s *bed, h how) error {
	var err error
	dir := filepath.Join(s.dir, "guest")
	if h.uml {
		s.g, err = guest.StartUML(guest.UMLConfig{Kernel: b.lab.UML(), Tree: b.lab.Tree(), Prog: b.prog, Dir: dir, Sockets: []string{s.d.Config.Socket}, MemMiB: 1024})
	} else {
		c := guest.QEMUConfig{Kernel: b.lab.Vmlinuz(), Initrds: b.initrds, Dir: dir, Accel: b.accel, MemMiB: 1024}
		var device []string
		if h.mtu > 1500 {
			device = append(device, fmt.Sprintf("host_mtu=%d", h.mtu))
		}
		if h.stream {
			c.Net, c.Private = guest.Stream(s.d.Config.Socket, device...), true
		} else {
			c.Net = guest.VhostUser(s.d.Config.Socket, device...)
		}
		s.g, err = guest.StartQEMU(c)
	}
	if err != nil {
		return err
	}
	_, err = s.g.Check("ip link set eth0 up; udhcpc -i eth0 -n -q -t 20 -T 1 -O mtu && ping -c 2 -i 0.2 -W 3 " + netns.ServiceV4)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, s.d.Tail(20))
	}
	return nil
}

func (s *bed) clear() {
	s.g.Stop()
	if s.d != nil {
		s.d.Kill()
	}
	for _, p := range s.server {
		p.Kill()
	}
	if s.dns != nil {
		s.dns.Close()
	}
	if s.w != nil {
		s.w.Close()
	}
}

// sh runs a client in the guest.
func (s *bed) sh(limit time.Duration, command string) (string, error) {
	if s.d.Exited() {
		return "", errors.New("the daemon has ended:\n" + s.d.Tail(20))
	}
	out, err := s.g.CheckFor(limit, command)
	if err != nil {
		return out, fmt.Errorf("%w\n--- daemon:\n%s", err, s.d.Tail(10))
	}
	return out, nil
}
