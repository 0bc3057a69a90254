package udp

import (
	"net/netip"

	"guestwire/translate/hostsock"
	"guestwire/translate/icmp"
)

const (
	quoteLen    = 1280 // of an offending datagram, more than an ICMP error quotes
	errorBudget = 16   // entries of one error queue per call
)

// errorsOf tells the guest what the error queue of a socket holds.
func (e *Engine) errorsOf(s source) {
	if s.cookie&served != 0 {
		e.errorsServed(s.cookie &^ served)
	} else {
		e.errors(s.cookie)
	}
}

// errors tells the guest what the error queue of conn i's socket holds.
func (e *Engine) errors(i uint32) {
	c := e.conns.At(i)
	if c.listener != 0 {
		e.errorsServed(c.listener)
		return
	}
	f := e.d.Flows.At(c.flow)
	for range errorBudget {
		se, errno := e.d.Host.Errors(f.FD, e.quote[:])
		if errno != 0 {
			return
		}
		q := e.quoted(c, e.quote[:min(max(se.N, 0), len(e.quote))])
		e.relay(&q, &se, f.Host.Addr())
	}
	e.d.Host.Again(f.FD)
}

// errorsServed does the same for a served socket: the datagram's destination
// says which flow is meant.
func (e *Engine) errorsServed(n uint32) {
	l := &e.listeners[n]
	for range errorBudget {
		se, errno := e.d.Host.Errors(l.fd, e.quote[:])
		if errno != 0 {
			return
		}
		_, i := e.seek(n, se.Dest)
		if i == 0 {
			e.stats.errorsIn++
			continue
		}
		q := e.quoted(e.conns.At(e.d.Flows.At(i).Slot), e.quote[:min(max(se.N, 0), len(e.quote))])
		e.relay(&q, &se, se.Dest.Addr())
	}
	e.d.Host.Again(l.fd)
}

func (e *Engine) relay(q *icmp.Quote, se *hostsock.SockErr, host netip.Addr) {
	e.stats.errorsIn++
	if icmp.Relay(e.d.Port, q, se, host) {
		e.stats.errorsOut++
	}
}

// quoted is a datagram of the guest's in c's flow.
func (e *Engine) quoted(c *conn, data []byte) icmp.Quote {
	k := &e.d.Flows.At(c.flow).Key
	return icmp.Quote{
		Src: k.Guest, Dst: k.Remote, Proto: k.Proto, SrcPort: k.GuestPort, DstPort: k.RemotePort, Data: data,
	}
}
