package worker

import (
	"crypto/rand"
	"fmt"
	"io"
	"log/slog"
	mathrand "math/rand/v2"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/translate"
	"guestwire/translate/dns"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// Worker serves one guest.
type Worker struct {
	cfg        *config.Net
	log        *slog.Logger
	seams      Seams
	loop       *eventloop.Loop
	host       *hostsock.Kernel
	translator *translate.Translator
	resolver   resolver
	watcher    *watcher
	capture    *capture // nil without --pcap
	attachment attachment
}

// attachment is the guest's side: a vhost-user server with its device, or a
// stream endpoint.
type attachment interface {
	Close()
	each(f func(name string, value uint64))
}

// New opens everything that cfg asks for: a Worker that exists will serve.
func New(cfg *config.Net, log *slog.Logger) (*Worker, error) { return NewOn(cfg, log, Seams{}) }

func (w *Worker) openLoop() (err error) {
	w.loop, err = eventloop.New(w.seams.Clock)
	return err
}

func (w *Worker) openHost() (err error) {
	w.host, err = hostsock.NewKernel(w.loop)
	return err
}

func (w *Worker) openTranslator() (err error) {
	w.resolver = resolver{fixedUp: w.cfg.Upstream, fixedSearch: w.cfg.Search}
	w.resolver.set(readResolvConf())
	w.translator, err = translate.New(w.translateConfig(), translate.Deps{
		Host: w.seams.Host(w.host), Timers: w.loop.Timers(), Clock: w.loop, Resolver: &w.resolver,
	})
	return err
}

// watch follows resolv.conf, unless everything that it says was given by option.
func (w *Worker) watch() error {
	if len(w.cfg.Upstream) > 0 && len(w.cfg.Search) > 0 {
		return nil
	}
	w.watcher = watchResolvConf(func(c dns.ResolvConf) {
		_ = w.loop.Do(func() {
			if w.resolver.set(c) {
				w.log.Info("the host's resolvers have changed", "now", w.resolver.upstreams)
				w.translator.ResolverChanged()
			}
		})
	})
	return nil
}

// Run serves the guest until Stop. It takes over the calling goroutine's thread.
func (w *Worker) Run() error {
	if err := w.loop.Run(); err != nil {
		return fmt.Errorf("the event loop ended: %w", err)
	}
	return nil
}

// Stop ends Run. It may be called from any goroutine.
func (w *Worker) Stop() { w.loop.Stop() }

// Close releases everything; Run has ended by then, or was never called.
func (w *Worker) Close() {
	w.watcher.close()
	if w.attachment != nil {
		w.attachment.Close()
	}
	if w.translator != nil {
		w.translator.Close()
	}
	w.capture.close()
	if w.host != nil {
		w.host.CloseAll()
	}
	if w.loop != nil {
		w.loop.Close()
	}
}

// Where says how the guest reaches this worker.
func (w *Worker) Where() string {
	if w.cfg.SocketPath != "" {
		return w.cfg.SocketPath
	}
	return fmt.Sprintf("file descriptor %d", w.cfg.FD)
}

// Forwards describes the inbound forwards for the ready line, each with the
// port that it really has; empty without any.
func (w *Worker) Forwards() string {
	const most = 8
	bound := w.translator.Bound()
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

// PrintStats writes every counter as a line `name value`.
func (w *Worker) PrintStats(out io.Writer) {
	done := make(chan string, 1)
	err := w.loop.Do(func() {
		var b strings.Builder
		line := func(name string, value uint64) { fmt.Fprintf(&b, "%s %d\n", name, value) }
		w.attachment.each(line)
		w.translator.Each(line)
		w.loopStats(line)
		done <- b.String()
	})
	if err != nil {
		fmt.Fprintln(out, "statistics are not to be had now:", err)
		return
	}
	_, _ = io.WriteString(out, <-done)
}

func (w *Worker) translateConfig() translate.Config {
	c := w.cfg
	t := translate.Config{
		MAC: c.MAC, MTU: c.MTU, Hostname: c.Hostname, FQDN: c.FQDN, Announce: c.Announce,
		Forwards: c.Forwards, MapHostLoopback: c.MapHostLoopback, AllowMetadata: c.AllowMetadata,
		Off: translate.Off(c.Off), MaxFlows: c.MaxFlows, Rand: newRand(), Log: w.limitedLog(),
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

func outbound(a netip.Addr, device string) hostsock.Options {
	o := hostsock.Options{Device: device}
	if a.IsValid() {
		o.Bind = netip.AddrPortFrom(a, 0)
	}
	return o
}

// newRand is an unpredictable generator for the loop: ChaCha8 under a random key.
func newRand() func() uint32 {
	var seed [32]byte
	_, _ = rand.Read(seed[:])
	return mathrand.New(mathrand.NewChaCha8(seed)).Uint32
}

// limitedLog is what the rooms below log with: a guest must not be able to fill
// the host's disk.
func (w *Worker) limitedLog() func(format string, a ...any) {
	log := logx.Limited(func(s string) { w.log.Warn(s) }, 20, 10*time.Second, time.Now)
	return func(format string, a ...any) { log(fmt.Sprintf(format, a...)) }
}

// raiseDescriptorLimit takes all that is allowed: a flow costs a descriptor.
func raiseDescriptorLimit() {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil && r.Cur < r.Max {
		r.Cur = r.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
	}
}
