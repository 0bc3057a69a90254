package worker

import (
	"fmt"

	"guestwire/cmd/config"
	"guestwire/vnet"
	"guestwire/vnet/link"
	"guestwire/vnet/stream"
	"guestwire/vring/vhostuser"
)

// attach opens the guest's side, with the capture in between if one is wanted.
func (w *Worker) attach() (err error) {
	var h link.Handler = w.translator
	if w.cfg.Pcap != "" {
		if w.capture, err = openCapture(w.cfg.Pcap, w.cfg.PcapSize, h, w.loop); err != nil {
			return err
		}
		h = w.capture.Capture
	}
	logf := func(format string, a ...any) { w.log.Info(fmt.Sprintf(format, a...)) }
	if w.cfg.Transport == config.Stream {
		return w.attachStream(h, logf)
	}
	return w.attachVhostUser(h, logf)
}

func (w *Worker) attachVhostUser(h link.Handler, logf func(string, ...any)) error {
	profile, ok := vnet.ParseProfile(w.cfg.Profile)
	if !ok {
		return fmt.Errorf("--profile %q is not known to the device", w.cfg.Profile)
	}
	d, err := vnet.New(vnet.Config{
		Profile: profile, MAC: guestMAC(w.cfg.MAC), MTU: w.cfg.MTU, Withhold: withheld(&w.cfg.Withhold),
	}, h, w.loop)
	if err != nil {
		return err
	}
	s, err := vhostuser.NewServer(w.loop, d, vhostuser.ServerConfig{
		Path: w.cfg.SocketPath, FD: w.cfg.FD, Client: w.cfg.Client, Log: logf, Gone: w.Stop,
	})
	if err != nil {
		d.Close()
		return err
	}
	w.attachment = &vhostUser{device: d, server: s}
	return nil
}

func (w *Worker) attachStream(h link.Handler, logf func(string, ...any)) error {
	e, err := stream.New(stream.Config{
		Path: w.cfg.SocketPath, FD: w.cfg.FD, Client: w.cfg.Client, MTU: w.cfg.MTU, Log: logf, Gone: w.Stop,
	}, h, w.loop)
	if err != nil {
		return err
	}
	w.attachment = &streamed{e}
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
