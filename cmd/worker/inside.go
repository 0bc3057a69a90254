package worker

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"syscall"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/vnet/netns"
	"guestwire/vnet/netns/splice"
)

// inside is what a Worker has beside a network card when its guest is a namespace:
// the end of that, the short way between the loopbacks, and forwards that follow
// listeners.
type inside struct {
	w      *Worker
	cfg    *config.Netns
	ns     *netns.Namespace
	life   *netns.Life
	splice *splice.Splice
	auto   *auto
}

// NewNetns makes the Worker of a namespace. It takes the tap over. When a namespace
// that was not made by us goes, the Worker stops.
func NewNetns(cfg *config.Netns, ns *netns.Namespace, log *slog.Logger) (*Worker, error) {
	net := *cfg.Net
	net.FD, ns.TapFD = ns.TapFD, -1
	w, err := newOn([]config.Guest{{Net: &net}}, log, Seams{}, &inside{cfg: cfg, ns: ns})
	if err == nil {
		w.inside.follow()
	}
	return w, err
}

func (in *inside) open(w *Worker) (err error) {
	if in == nil {
		return nil
	}
	in.w = w
	if in.life, err = in.ns.Follow(w.loop, w.Stop); err != nil {
		return err
	}
	in.splice = splice.New(splice.Config{Host: netns.Here{}, Inside: in.ns, Log: limited(w.log)}, w.loop)
	for i := range in.cfg.Out {
		if err := in.outward(&in.cfg.Out[i]); err != nil {
			return err
		}
	}
	return nil
}

func (in *inside) close() {
	if in == nil {
		return
	}
	in.auto.stop()
	in.life.Close()
	if in.splice != nil {
		in.splice.Shut()
	}
}

var loopback4, loopback6 = netip.AddrFrom4([4]byte{127, 0, 0, 1}), netip.IPv6Loopback()

// outward opens a forward from the namespace's loopback to the host's.
func (in *inside) outward(r *forward.Rule) error {
	at := []netip.Addr{r.Addr}
	if !r.Addr.IsValid() {
		at = []netip.Addr{loopback4, loopback6}
	}
	opened := 0
	var last error
	for port := int(r.First); port <= int(r.Last); port++ {
		for _, a := range at {
			err := in.splice.Open(outRule(r.Proto == hostsock.UDP, a, uint16(port), r.Target(uint16(port))))
			switch {
			case err == nil:
				opened++
			case errors.Is(err, syscall.EADDRNOTAVAIL) && !r.Addr.IsValid(): // no IPv6 there
			case !r.Weak:
				return fmt.Errorf("forward %s out of the namespace: %w", r, err)
			default:
				last = err
			}
		}
	}
	if opened == 0 {
		return fmt.Errorf("forward %s out of the namespace: not one port of it can be had: %w", r, last)
	}
	return nil
}

// outRule leads a port at an address inside to the host's loopback of that family.
func outRule(udp bool, at netip.Addr, port, to uint16) splice.Rule {
	r := splice.Rule{Out: true, Type: unix.SOCK_STREAM, At: netip.AddrPortFrom(at, port), To: netip.AddrPortFrom(loopback6, to)}
	if udp {
		r.Type = unix.SOCK_DGRAM
	}
	if at.Is4() {
		r.To = netip.AddrPortFrom(loopback4, to)
	}
	return r
}

// local is the short way of what comes to a forward from the host's loopback. By
// default it arrives at the namespace's own address, as by the long way.
func (in *inside) local() func(fd hostsock.FD, v4 bool, port uint16) bool {
	if in == nil {
		return nil
	}
	return func(fd hostsock.FD, v4 bool, port uint16) bool {
		to := in.cfg.Net.V6.Guest.Addr()
		if v4 {
			to = in.cfg.Net.V4.Guest.Addr()
		}
		switch {
		case in.cfg.LoopToLoop && v4:
			to = loopback4
		case in.cfg.LoopToLoop:
			to = loopback6
		case v4 && !in.cfg.Net.V4.Enabled, !v4 && !in.cfg.Net.V6.Enabled:
			return false
		}
		own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
		if err != nil {
			return false
		}
		in.splice.Take(own, netip.AddrPortFrom(to, port))
		return true
	}
}

func (in *inside) each(f func(name string, value uint64)) {
	if in != nil {
		in.splice.Each(func(name string, v uint64) { f("splice_"+name, v) })
	}
}
