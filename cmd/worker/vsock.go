package worker

import (
	"context"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"strings"
	"time"

	"guestwire/cmd/config"
	"guestwire/vring/vhostuser"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/hostside"
)

// vsock is one guest's vsock device: its frontend before it, the host's sockets
// behind it.
type vsock struct {
	cfg        *config.Vsock
	host       *hostside.Host
	configurer *configurer // nil: the guest has no network card, or another use for the port
	device     *vsockbridge.Device
	server     *vhostuser.Server
}

func (w *Worker) openVsock(cfg *config.Vsock, n *nic, log *slog.Logger) (v *vsock, err error) {
	v = &vsock{cfg: cfg}
	h := cfg.Host
	h.Lookup, h.Log = lookup, limited(log)
	if v.host, err = hostside.New(h, w.loop); err != nil {
		return v, err
	}
	c := vsockbridge.Config{
		CID: cfg.CID, Host: v.host, BufAlloc: cfg.TxBuffer, MaxConns: cfg.MaxConns,
		Withhold: withheldVsock(&cfg.Withhold), Log: limited(log),
	}
	if n != nil {
		if v.configurer = newConfigurer(cfg, n, v.host, w.loop); v.configurer != nil {
			c.Host, n.configurer = v.configurer, v.configurer
		}
	}
	for _, name := range cfg.Groups {
		c.Groups = append(c.Groups, w.group(name))
	}
	if v.device, err = vsockbridge.New(c, w.loop); err != nil {
		return v, err
	}
	v.host.Attach(v.device)
	v.server, err = vhostuser.NewServer(w.loop, v.device, vhostuser.ServerConfig{
		Path: cfg.SocketPath, FD: cfg.FD, Client: cfg.Client, Log: unlimited(log.With("device", "vsock")), Gone: w.Stop,
	})
	return v, err
}

// close releases what is open, the clients first; the device may be half made.
func (v *vsock) close() {
	if v == nil {
		return
	}
	if v.server != nil {
		v.server.Close()
	}
	if v.host != nil {
		v.host.Close()
	}
	if v.device != nil {
		v.device.Close()
	}
	v.configurer.close()
}

func (v *vsock) ready() string {
	s := fmt.Sprintf("%s (vhost-user vsock, CID %d)", where(v.cfg.SocketPath, v.cfg.FD), v.cfg.CID)
	if l := v.host.Listening(); len(l) > 0 {
		s += "; listening on " + strings.Join(l, ", ")
	}
	return s
}

func (v *vsock) each(f func(name string, value uint64)) {
	s := v.device.Stats()
	s.Each(func(name string, n uint64) { f("vsock_"+name, n) })
	v.host.Each(func(name string, n uint64) { f("vsock_host_"+name, n) })
	v.configurer.each(f)
}

// withheldVsock turns the --no-... options of the device into feature bits.
func withheldVsock(o *config.VsockWithhold) (f uint64) {
	for _, b := range []struct {
		off  bool
		bits uint64
	}{
		{o.Seqpacket, vsockbridge.FSeqPacket},
		{o.EventIdx, vhostuser.RingFEventIdx}, {o.Indirect, vhostuser.RingFIndirectDesc}, {o.InOrder, vhostuser.FInOrder},
	} {
		if b.off {
			f |= b.bits
		}
	}
	return f
}

// group returns the sibling group of a name, which all its guests share.
func (w *Worker) group(name string) *vsockbridge.Group {
	g := w.groups[name]
	if g == nil {
		g = vsockbridge.NewGroup()
		w.groups[name] = g
	}
	return g
}

const lookupTime = 5 * time.Second

// lookup resolves a name in a rule, once, while the worker starts.
func lookup(name string) (netip.Addr, error) {
	ctx, cancel := context.WithTimeout(context.Background(), lookupTime)
	defer cancel()
	list, err := net.DefaultResolver.LookupNetIP(ctx, "ip", name)
	if err != nil {
		return netip.Addr{}, err
	}
	return list[0], nil
}
