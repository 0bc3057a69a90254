package worker

import (
	"fmt"

	"guestwire/cmd/config"
	"guestwire/vnet"
	"guestwire/vnet/link"
	"guestwire/vnet/stream"
	"guestwire/vnet/tap"
	"guestwire/vnet/vhostnet"
	"guestwire/vring/vhostkern"
	"guestwire/vring/vhostuser"
)

// attach opens the guest's side, with the capture in between if one is wanted.
func (n *nic) attach() (err error) {
	var h link.Handler = n.translator
	if n.cfg.Pcap != "" {
		if n.capture, err = openCapture(n.cfg.Pcap, n.cfg.PcapSize, h, n.loop); err != nil {
			return err
		}
		h = n.capture.Capture
	}
	switch n.cfg.Transport {
	case config.Stream:
		return n.attachStream(h)
	case config.Tap:
		return n.attachTap(h)
	}
	return n.attachVhostUser(h)
}

func (n *nic) attachVhostUser(h link.Handler) error {
	profile, ok := vnet.ParseProfile(n.cfg.Profile)
	if !ok {
		return fmt.Errorf("--profile %q is not known to the device", n.cfg.Profile)
	}
	d, err := vnet.New(vnet.Config{
		Profile: profile, MAC: guestMAC(n.cfg.MAC), MTU: n.cfg.MTU, Withhold: withheld(&n.cfg.Withhold),
	}, h, n.loop)
	if err != nil {
		return err
	}
	s, err := vhostuser.NewServer(n.loop, d, vhostuser.ServerConfig{
		Path: n.cfg.SocketPath, FD: n.cfg.FD, Client: n.cfg.Client, Log: unlimited(n.log.With("device", "net")), Gone: n.stop,
	})
	if err != nil {
		d.Close()
		return err
	}
	n.attachment = &vhostUser{device: d, server: s}
	return nil
}

func (n *nic) attachStream(h link.Handler) error {
	e, err := stream.New(stream.Config{
		Path: n.cfg.SocketPath, FD: n.cfg.FD, Client: n.cfg.Client, MTU: n.cfg.MTU, Log: unlimited(n.log), Gone: n.stop,
	}, h, n.loop)
	if err != nil {
		return err
	}
	n.attachment = &streamed{e}
	return nil
}

// attachTap has the kernel's vhost-net move the frames where it can, and moves them
// itself where not.
func (n *nic) attachTap(h link.Handler) error {
	fallback := false
	if n.cfg.Vhost.Use {
		err := n.attachVhostNet(h)
		switch {
		case err == nil:
			return nil
		case n.cfg.Vhost.Required:
			return fmt.Errorf("--vhost-kernel: %w", err)
		}
		n.log.Debug("the kernel does not move the frames", "why", err)
		fallback = true
	}
	e, err := tap.New(tap.Config{FD: n.cfg.FD, MTU: n.cfg.MTU, Log: unlimited(n.log), Gone: n.stop}, h, n.loop)
	if err != nil {
		return err
	}
	n.attachment = &tapped{e, fallback}
	return nil
}

// attachVhostNet leaves the tap alone when it fails.
func (n *nic) attachVhostNet(h link.Handler) (err error) {
	fd := n.cfg.Vhost.FD
	if fd < 0 {
		if fd, err = vhostkern.Open(); err != nil {
			return err
		}
	}
	e, err := vhostnet.New(vhostnet.Config{Tap: n.cfg.FD, Vhost: fd, MTU: n.cfg.MTU, Log: unlimited(n.log), Gone: n.stop}, h, n.loop)
	if err != nil {
		return err
	}
	n.attachment = &vhostNet{e}
	return nil
}

// vhostUser is the attachment by shared memory.
type vhostUser struct {
	device *vnet.Device
	server *vhostuser.Server
}

func (a *vhostUser) Close() {
	a.server.Close()
	a.device.Close()
}

func (a *vhostUser) each(f func(string, uint64)) {
	s := a.device.Stats()
	s.Each(func(name string, v uint64) { f("net_"+name, v) })
}

// streamed is the attachment by QEMU's stream framing.
type streamed struct{ *stream.Endpoint }

func (a *streamed) each(f func(string, uint64)) {
	s := a.Stats()
	s.Each(func(name string, v uint64) { f("net_"+name, v) })
}

// vhostNet is the attachment to a namespace by the kernel's vhost-net.
type vhostNet struct{ *vhostnet.Endpoint }

func (a *vhostNet) each(f func(string, uint64)) {
	s := a.Stats()
	s.Each(func(name string, v uint64) { f("net_"+name, v) })
}

// tapped is the attachment to a namespace by reading and writing.
type tapped struct {
	*tap.Endpoint
	fallback bool // the kernel's vhost-net was wanted, and is not to be had
}

func (a *tapped) each(f func(string, uint64)) {
	s := a.Stats()
	s.Each(func(name string, v uint64) { f("net_"+name, v) })
	if a.fallback {
		f("net_vhost_fallback", 1)
	}
}

// withheld turns the --no-... options of the device into feature bits.
func withheld(o *config.Withhold) uint64 {
	var f uint64
	for _, b := range []struct {
		off  bool
		bits uint64
	}{
		{o.TSO, vnet.TSO}, {o.USO, vnet.USO}, {o.Csum, vnet.Csum}, {o.MrgRxbuf, vhostuser.NetFMrgRxbuf},
		{o.EventIdx, vhostuser.RingFEventIdx}, {o.Indirect, vhostuser.RingFIndirectDesc}, {o.InOrder, vhostuser.FInOrder},
	} {
		if b.off {
			f |= b.bits
		}
	}
	return f
}

// guestMAC is the address that the guest is told in config space, where the
// frontend has none of its own: ours with the last byte changed.
func guestMAC(ours [6]byte) [6]byte {
	ours[5] ^= 0x80
	return ours
}
