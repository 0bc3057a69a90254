package relay

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// idle is what is watched on a descriptor from which nothing is wanted: that
// the peer goes. Edge-triggered, so that one that has gone does not keep the
// loop awake.
const idle = eventloop.Edge | eventloop.RDHup

// watch is one registration on the loop.
type watch struct {
	token eventloop.Token
	ev    eventloop.Events
}

// end is one End and its registrations: one for a socket, two for two
// descriptors (rd for In, wr for Out).
type end struct {
	End
	rd, wr         watch
	inSock, outSok bool
	domain         int // of the socket that is read; 0 for a pipe
	widened        bool
}

// both says that one socket serves both directions.
func (e *end) both() bool { return e.In == e.Out && e.In >= 0 }

// widen has the send buffer of a socket hold a message of n bytes, if the host
// allows. It reports false from the second time on.
func (e *end) widen(n int) bool {
	if e.widened {
		return false
	}
	e.widened = true
	// The kernel doubles n, for what a message costs beside its bytes.
	if unix.SetsockoptInt(e.Out, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, n) != nil {
		_ = unix.SetsockoptInt(e.Out, unix.SOL_SOCKET, unix.SO_SNDBUF, n) // net.core.wmem_max caps it
	}
	return true
}

// Pair is two ends that are joined. It is an eventloop.Source.
type Pair struct {
	r          *Relay
	prev, next *Pair
	ends       [2]end
	flows      [2]flow // flows[i] reads ends[i] and writes ends[1-i]
	ended      func(Result)
	closed     bool
}

// Cookies of the registrations: end<<1 | cookieOut.
const cookieOut = 1

func (p *Pair) open(es [2]End) error {
	for i := range p.ends {
		e := &p.ends[i]
		e.End = es[i]
		if e.In >= 0 {
			e.domain, e.inSock = domain(e.In)
		}
		if e.Out >= 0 {
			_, e.outSok = domain(e.Out)
		}
		p.flows[i] = flow{pipe: noPipe}
		p.flows[i].begin(p.r, es[i], es[1-i])
	}
	for i := range p.ends {
		if err := p.register(i); err != nil {
			p.unregister()
			return err
		}
	}
	return nil
}

// domain returns the address family of a socket.
func domain(fd int) (int, bool) {
	d, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return d, err == nil
}

func (p *Pair) register(i int) (err error) {
	e := &p.ends[i]
	if e.In >= 0 {
		e.rd.ev = idle
		if e.rd.token, err = p.r.loop.Add(e.In, idle, p, uint32(i<<1)); err != nil {
			return err
		}
	}
	if e.Out >= 0 && !e.both() {
		e.wr.ev = idle
		e.wr.token, err = p.r.loop.Add(e.Out, idle, p, uint32(i<<1|cookieOut))
	}
	return err
}

func (p *Pair) unregister() {
	for i := range p.ends {
		e := &p.ends[i]
		p.r.loop.Remove(e.rd.token)
		p.r.loop.Remove(e.wr.token)
		e.rd, e.wr = watch{}, watch{}
	}
}

// Ready implements eventloop.Source.
func (p *Pair) Ready(cookie uint32, ev eventloop.Events) {
	i := int(cookie >> 1)
	e, from, to := &p.ends[i], &p.flows[i], &p.flows[1-i]
	reads, writes := cookie&cookieOut == 0, cookie&cookieOut != 0 || e.both()
	failed := ev&(eventloop.HUP|eventloop.Err) != 0
	if reads && (failed || ev&(eventloop.In|eventloop.Again) != 0) && from.wantsTurn() {
		p.pump(i)
	}
	if p.closed {
		return
	}
	if writes && (failed || ev&eventloop.Out != 0) && to.holds() {
		p.pump(1 - i)
	}
	if p.closed {
		return
	}
	// A target that is idle tells only here that it has gone.
	if writes && !to.done() && !to.holds() {
		if failed && e.Kind != Datagram || ev&eventloop.RDHup != 0 && from.done() && p.deaf(e) {
			p.cut(1 - i)
		}
	}
	p.settle()
}

// Break implements eventloop.Breaker.
func (p *Pair) Break(error) { p.close(unix.EFAULT) }

// Close ends the pair at once. ended is not called.
func (p *Pair) Close() {
	p.ended = nil
	p.close(0)
}

// Moved is how many bytes have been written so far: from a to b, from b to a.
func (p *Pair) Moved() [2]uint64 { return [2]uint64{p.flows[0].bytes, p.flows[1].bytes} }

// pump moves what it can from ends[i] to the other, and draws the conclusions.
func (p *Pair) pump(i int) {
	f, src, dst := &p.flows[i], &p.ends[i], &p.ends[1-i]
	switch what, errno := f.run(p.r, src, dst); what {
	case again:
		p.r.loop.Again(src.rd.token)
	case srcEnded:
		p.finish(i, errno)
	case dstGone:
		p.cut(i)
	case broken:
		p.close(errno)
	}
}

// finish ends a direction whose source has ended, and whose bytes have all been
// delivered. errno is what the source ended with.
func (p *Pair) finish(i int, errno unix.Errno) {
	f, src, dst := &p.flows[i], &p.ends[i], &p.ends[1-i]
	f.end(p.r)
	if errno != 0 {
		p.reset(dst)
		p.close(errno)
		return
	}
	if dst.Kind == Datagram {
		p.close(0) // which knows no end of its own: this is everybody's
		return
	}
	if dst.Out >= 0 {
		if dst.both() || dst.outSok {
			_ = unix.Shutdown(dst.Out, unix.SHUT_WR)
		}
		if !dst.both() {
			p.closeOut(dst)
		}
	}
	if back := &p.flows[1-i]; !back.done() && !back.holds() && p.deaf(src) {
		p.cut(1 - i)
	}
}

// cut ends a direction whose target does not take anything any more. What writes
// to its source learns of it where the source is a pipe or a UNIX socket.
func (p *Pair) cut(i int) {
	p.flows[i].end(p.r)
	src := &p.ends[i]
	switch {
	case src.both() && src.Kind == Stream && src.domain != unix.AF_UNIX && inet(src.In):
		// Its peer would not hear of it, and its own end would be hidden from Lingers.
	case src.both() && src.Kind != Datagram:
		_ = unix.Shutdown(src.In, unix.SHUT_RD)
	case src.Kind == Datagram:
		p.close(unix.EPIPE)
	case src.In >= 0:
		p.closeIn(src)
	}
}

// deaf says that the peer behind e, which has ended its own direction, does not
// read either: it has closed, not half-closed. Sending nothing tells.
func (p *Pair) deaf(e *end) bool {
	if !e.both() || e.Kind.messages() {
		return false
	}
	_, errno := send(e.Out, nil)
	return errno == unix.EPIPE || errno == unix.ECONNRESET
}

// reset makes the coming close of a TCP socket say that something went wrong,
// since what was sent so far must not pass for all.
func (p *Pair) reset(e *end) {
	if e.outSok {
		_ = unix.SetsockoptLinger(e.Out, unix.SOL_SOCKET, unix.SO_LINGER, &unix.Linger{Onoff: 1})
	}
}

// settle ends the pair when both directions have, else watches what they need.
func (p *Pair) settle() {
	if p.closed {
		return
	}
	if p.flows[0].done() && p.flows[1].done() {
		p.close(0)
		return
	}
	for i := range p.ends {
		in, out := eventloop.Events(0), eventloop.Events(0)
		if p.flows[i].wantsIn() {
			in = eventloop.In
		}
		if p.flows[1-i].holds() {
			out = eventloop.Out
		}
		e := &p.ends[i]
		if e.both() {
			in |= out
		} else {
			p.arm(&e.wr, out)
		}
		p.arm(&e.rd, in)
	}
}

func (p *Pair) arm(w *watch, ev eventloop.Events) {
	if ev == 0 {
		ev = idle
	}
	if w.token == 0 || w.ev == ev {
		return
	}
	w.ev = ev
	_ = p.r.loop.Modify(w.token, ev)
}

func (p *Pair) closeIn(e *end) {
	p.r.loop.Remove(e.rd.token)
	unix.Close(e.In)
	e.In, e.rd = -1, watch{}
}

func (p *Pair) closeOut(e *end) {
	p.r.loop.Remove(e.wr.token)
	unix.Close(e.Out)
	e.Out, e.wr = -1, watch{}
}

// close gives everything back.
func (p *Pair) close(errno unix.Errno) {
	if p.closed {
		return
	}
	p.closed = true
	p.unregister()
	res := Result{Err: errno}
	for i := range p.ends {
		p.flows[i].end(p.r)
		res.Bytes[i] = p.flows[i].bytes
		e := &p.ends[i]
		switch {
		case errno == 0 && e.both():
			p.r.lingers.Close(e.In)
		case e.In >= 0:
			unix.Close(e.In)
		}
		if e.Out >= 0 && !e.both() {
			unix.Close(e.Out)
		}
		e.In, e.Out = -1, -1
	}
	p.r.unlink(p)
	if errno != 0 {
		p.r.stats.Failed++
	}
	if p.ended != nil {
		p.ended(res)
	}
}
