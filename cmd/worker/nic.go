package worker

import (
	"crypto/rand"
	"fmt"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/translate"
	"guestwire/translate/dns"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// nic is one guest's network card: its device or stream endpoint, the translator
// behind it, and the sockets of the host behind that.
type nic struct {
	cfg        *config.Net
	log        *slog.Logger
	loop       *eventloop.Loop
	stop       func() // ends the worker
	host       *hostsock.Kernel
	translator *translate.Translator
	resolver   resolver
	capture    *capture // nil without --pcap
	attachment attachment
	configurer *configurer // tells the guest of changes; nil: nobody does
}

// attachment is the guest's side: a vhost-user server with its device, or a
// stream endpoint.
type attachment interface {
	Close()
	each(f func(name string, value uint64))
}

func (w *Worker) openNIC(cfg *config.Net, log *slog.Logger) (n *nic, err error) {
	n = &nic{cfg: cfg, log: log, loop: w.loop, stop: w.Stop}
	if err := checkOutbound(cfg); err != nil {
		return n, err
	}
	if n.host, err = hostsock.NewKernel(w.loop); err != nil {
		return n, err
	}
	n.resolver = resolver{fixedUp: cfg.Upstream, fixedSearch: cfg.Search}
	n.resolver.set(readResolvConf(w.seams.ResolvConf))
	n.translator, err = translate.New(n.translateConfig(), translate.Deps{
		Host: w.seams.Host(n.host), Timers: w.loop.Timers(), Clock: w.loop, Resolver: &n.resolver,
		Local: w.inside.local(),
	})
	if err != nil {
		return n, err
	}
	return n, n.attach()
}

// close releases what is open; the card may be half made.
func (n *nic) close() {
	if n == nil {
		return
	}
	if n.attachment != nil {
		n.attachment.Close()
	}
	if n.translator != nil {
		n.translator.Close()
	}
	n.capture.close()
	if n.host != nil {
		n.host.CloseAll()
	}
}

func (n *nic) resolversChanged(c dns.ResolvConf) {
	if n.resolver.set(c) {
		n.log.Info("the host's resolvers have changed", "now", n.resolver.upstreams)
		n.translator.ResolverChanged()
		n.configurer.changed()
	}
}

func (n *nic) ready() string {
	return fmt.Sprintf("%s (%s)%s", where(n.cfg.SocketPath, n.cfg.FD), n.cfg.Transport, n.forwards())
}

// forwards describes the inbound forwards for the ready line, each with the port
// that it really has; empty without any.
func (n *nic) forwards() string {
	const most = 8
	bound := n.translator.Bound()
	var b strings.Builder
	for i, f := range bound {
		if i == most {
			fmt.Fprintf(&b, ", and %d more", len(bound)-most)
			break
		}
		sep := ", "
		if i == 0 {
			sep = "; forwards "
		}
		proto := "tcp"
		if f.Proto == hostsock.UDP {
			proto = "udp"
		}
		to := f.To.String()
		if !f.To.Addr().IsValid() {
			to = fmt.Sprint(f.To.Port())
		}
		fmt.Fprintf(&b, "%s%s %s -> %s", sep, proto, f.Local, to)
	}
	return b.String()
}

func (n *nic) translateConfig() translate.Config {
	c := n.cfg
	t := translate.Config{
		MAC: c.MAC, MTU: c.MTU, Hostname: c.Hostname, FQDN: c.FQDN, Announce: c.Announce,
		Forwards: c.Forwards, MapHostLoopback: c.MapHostLoopback, MapHost: mapHost(c.MapHost), AllowMetadata: c.AllowMetadata,
		Off: translate.Off(c.Off), MaxFlows: c.MaxFlows, Rand: newRand(), Log: limited(n.log),
		Outbound4: outbound(c.Outbound4, c.OutboundIf[0]), Outbound6: outbound(c.Outbound6, c.OutboundIf[1]),
	}
	_, _ = rand.Read(t.Secret[:]) // never fails (crypto/rand)
	if c.V4.Enabled {
		t.V4 = translate.Net{Guest: c.V4.Guest, Gateway: c.V4.Gateway, DNS: c.V4.DNS}
	}
	if c.V6.Enabled {
		t.V6 = translate.Net{Guest: c.V6.Guest, Gateway: c.V6.Gateway, DNS: c.V6.DNS}
	}
	return t
}

func mapHost(list []config.AddrMap) (m map[netip.Addr]netip.Addr) {
	m = make(map[netip.Addr]netip.Addr, len(list))
	for _, x := range list {
		m[x.From] = x.To
	}
	return m
}

// newRand is an unpredictable generator for the loop: ChaCha8 under a random key.
func newRand() func() uint32 {
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	return mathrand.New(mathrand.NewChaCha8(seed)).Uint32
}

// limited is what the rooms below log with: a guest must not be able to fill the
// host's disk.
func limited(to *slog.Logger) func(format string, a ...any) {
	log := logx.Limited(func(s string) { to.Warn(s) }, 20, 10*time.Second, time.Now)
	return func(format string, a ...any) { log(fmt.Sprintf(format, a...)) }
}

func unlimited(to *slog.Logger) func(format string, a ...any) {
	return func(format string, a ...any) { to.Info(fmt.Sprintf(format, a...)) }
}
