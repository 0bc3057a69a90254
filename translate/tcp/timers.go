package tcp

import (
	"time"

	"guestwire/vring/eventloop"
)

// A connection has one timer on the wheel and two deadlines, rtxAt and idleAt.
// The wheel is told only of a deadline that is earlier than what it knows of:
// one that moves back with every ACK costs nothing, and when the wheel calls too
// early it is set anew.

// arm makes the wheel call by the earlier deadline.
func (e *Engine) arm(c *conn) {
	at := c.rtxAt
	if at == 0 || c.idleAt != 0 && c.idleAt < at {
		at = c.idleAt
	}
	if at != 0 && (c.timerAt == 0 || at < c.timerAt) {
		c.timerAt = at
		e.timers.Set(c.timer, at)
	}
}

func (e *Engine) expired(slot uint32) {
	if !e.conns.Taken(slot) {
		return
	}
	c := e.conns.At(slot)
	c.timerAt = 0
	now := e.now()
	if c.rtxAt != 0 && c.rtxAt <= now {
		c.rtxAt = 0
		e.rtxExpired(c)
	}
	if c.idleAt != 0 && c.idleAt <= now {
		c.idleAt = 0
		e.idleExpired(c)
	}
	e.finish(c)
}

// startRetransmit (re)starts the retransmission timer.
func (e *Engine) startRetransmit(c *conn) {
	c.clear(fPersist)
	c.rtxAt = e.now() + eventloop.Time(c.rto())
}

// stalled sees to it that a closed window does not stay unnoticed when it opens:
// with nothing in flight no ACK will tell (RFC 9293 3.8.6.1).
func (e *Engine) stalled(c *conn) {
	if c.una == c.max && c.rtxAt == 0 {
		c.set(fPersist)
		c.rtxAt = e.now() + eventloop.Time(c.rto())
	}
}

func (e *Engine) rtxExpired(c *conn) {
	switch {
	case c.state == Connecting:
		e.event(c, GiveUp)
	case c.state.halfOpen():
		if c.retries++; c.retries > synRetries {
			e.event(c, GiveUp)
			return
		}
		e.stats.Retransmits++
		e.handshakeSegment(c)
		e.startRetransmit(c)
	case !c.state.sendsData():
	case c.wnd == 0:
		e.windowProbe(c)
	case c.has(fPersist): // it has opened
		c.clear(fPersist)
		e.output(c)
	case c.una != c.max:
		e.timeout(c)
	}
}

// windowProbe asks a guest with a closed window. It may stay closed as long as
// the guest answers, within the idle limit.
func (e *Engine) windowProbe(c *conn) {
	if c.una == c.max && e.available(c) == 0 && !e.finDue(c) {
		c.clear(fPersist)
		return
	}
	if c.probes++; c.probes > maxRetries || e.stuck(c) {
		e.event(c, GiveUp)
		return
	}
	e.probe(c)
	c.retries = min(c.retries+1, maxRetries)
	c.set(fPersist)
	c.rtxAt = e.now() + eventloop.Time(c.rto())
}

// timeout goes back to una and sends again from there, two segments at first
// and twice as many with every round trip (RFC 6298 5.4, RFC 5681 3.1). What the
// guest told with SACK is forgotten: it may have thrown it away (RFC 2018 8).
// While the guest has no room for frames nothing was lost, and no retry counts.
func (e *Engine) timeout(c *conn) {
	if c.queue.in == waiting {
		e.startRetransmit(c)
		return
	}
	if c.retries++; c.retries > maxRetries {
		e.event(c, GiveUp)
		return
	}
	e.stats.Timeouts++
	e.freeBoard(c)
	c.clear(fTiming)
	c.set(fRecover)
	c.recover, c.nxt, c.dups = c.max, c.una, 0
	c.cwnd = uint32(2 * e.sendMSS(c))
	e.startRetransmit(c)
	e.output(c)
}

// startIdle starts the keepalive timer of the state.
func (e *Engine) startIdle(c *conn) {
	c.idleAt = e.now() + eventloop.Time(e.idle(c))
}

func (e *Engine) idle(c *conn) time.Duration {
	if c.state.halfClosed() {
		return e.cfg.HalfIdle
	}
	return e.cfg.KeepIdle
}

// stuck says whether a connection has made no progress for too long.
func (e *Engine) stuck(c *conn) bool { return e.now()-c.moved > eventloop.Time(e.cfg.IdleLimit) }

func (e *Engine) idleExpired(c *conn) {
	switch {
	case c.state == TimeWait && !c.has(fFlushed):
		// The target has not taken everything yet.
		if e.stuck(c) {
			e.event(c, GiveUp)
			return
		}
		c.idleAt = e.now() + eventloop.Time(lingerTime)
	case c.state == TimeWait:
		e.event(c, TimeOver)
	case c.state == Aborted:
		e.event(c, GiveUp)
	case c.state.synchronized():
		e.keepalive(c)
	}
}

// keepalive probes a guest that has been silent. A guest that is gone does not
// answer, one that has forgotten the connection answers with a RST.
func (e *Engine) keepalive(c *conn) {
	now := e.now()
	silence := time.Duration(now - c.heard)
	if idle := e.idle(c); silence < idle {
		c.idleAt = c.heard + eventloop.Time(idle)
		return
	}
	if c.probes >= keepProbes || c.state.halfClosed() && e.stuck(c) {
		e.event(c, GiveUp)
		return
	}
	c.probes++
	e.keepHost(c)
	e.probe(c)
	interval := keepInterval
	if c.state.halfClosed() {
		interval = halfInterval
	}
	c.idleAt = now + eventloop.Time(interval)
}

// keepHost has the kernel watch over the other end as well.
func (e *Engine) keepHost(c *conn) {
	if !c.has(fKeepHost) && c.hosted() {
		c.set(fKeepHost)
		_ = e.host.SetKeepalive(c.fd) // at worst a dead target is noticed later
	}
}
