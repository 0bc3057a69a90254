package worker

import (
	"fmt"

	"guestwire/cmd/config"
	"guestwire/vnet"
	"guestwire/vnet/link"
	"guestwire/vnet/stream"
	"guestwire/vnet/tap"
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
		Path: n.cfg.SocketPath, FD: n.cfg.FD, Client: n.cfg.Client, Log: unlimited(n.log), Gone: n.stop,
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

func (n *nic) attachTap(h link.Handler) error {
	e, err := tap.New(tap.Config{FD: n.cfg.FD, MTU: n.cfg.MTU, Log: unlimited(n.log), Gone: n.stop}, h, n.loop)
	if err != nil {
		return err
	}
	n.attachment = &tapped{e}
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

// tapped is the attachment to a namespace.
type tapped struct{ *tap.Endpoint }

func (a *tapped) each(f func(string, uint64)) {
	s := a.Stats()
	s.Each(func(name string, v uint64) { f("net_"+name, v) })
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
