package tcp

import (
	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// event takes a step of the state machine and does what it asks for. The
// connection may be gone afterwards: its state is Closed then.
func (e *Engine) event(c *conn, ev Event) {
	if ev == GiveUp {
		e.stats.GaveUp++
	}
	from := c.state
	to, do := step(from, ev)
	c.state = to
	if do != 0 {
		e.perform(c, from, do)
	}
}

// perform does the actions of one step, in the order of their bits. SendReset
// may end the connection (ResetSent) and is therefore left for last.
func (e *Engine) perform(c *conn, from State, do Action) {
	if do&SendSynAck != 0 {
		e.synAck(c)
	}
	if do&SendAck != 0 {
		c.set(fAckOwed)
	}
	if do&QueueFin != 0 {
		c.set(fFinQueued)
	}
	if do&Open != 0 {
		e.open(c)
	}
	if do&Shutdown != 0 {
		// A socket that fails here tells so by its events.
		_ = e.host.Shutdown(c.fd)
	}
	if do&Report != 0 {
		e.report(c)
	}
	if do&(CloseHost|AbortHost) != 0 {
		e.closeHost(c, do&AbortHost != 0)
	}
	if c.state > Established && from <= Established {
		e.flows.Advance(c.flow, flow.Closing)
		e.startIdle(c)
	}
	if do&StartLinger != 0 {
		e.linger(c)
	}
	switch {
	case do&Free != 0:
		e.free(c)
	case do&SendReset != 0:
		e.stats.Aborted++
		e.reset(c)
	}
}

// closeHost closes the host socket. Bytes left unread would make the kernel send
// a RST in place of a FIN; there are none, since everything was consumed when the
// guest ACKed the FIN behind it.
func (e *Engine) closeHost(c *conn, abort bool) {
	if c.fd == hostsock.None {
		return
	}
	e.host.Close(c.fd, abort)
	c.fd = hostsock.None
	e.flows.At(c.flow).FD = hostsock.None
	c.clear(fHostReady | fHostEnd | fHostFull)
	c.rtxAt = 0
	e.freeInBuf(c)
	e.freeOutBuf(c)
	e.freeBoard(c)
}

// linger keeps a connection that is over for a while: in TimeWait to ACK a
// repeated FIN, in Aborted until there is room for the RST.
func (e *Engine) linger(c *conn) {
	e.unlink(halfOpen, c)
	e.push(lingering, c)
	d := lingerTime
	if c.state == Aborted {
		d = abortTime
	}
	c.rtxAt = 0
	c.idleAt = e.now() + eventloop.Time(d)
	e.arm(c)
}

// hostFailed ends a connection whose host socket has an error. What the target
// had sent before goes to the guest first, as far as it has room: a server that
// answers and then resets is to be heard.
func (e *Engine) hostFailed(c *conn) {
	c.set(fHostFailed | fHostReady)
	if c.state.sendsData() && !c.has(fFinQueued) {
		e.output(c)
	}
	if c.state != Closed {
		e.event(c, HostError)
	}
}

// free gives back everything that a connection holds.
func (e *Engine) free(c *conn) {
	if c.batch != 0 {
		e.batch[c.batch-1].slot = 0
	}
	if e.hot == c {
		e.hot = nil
	}
	if c.fd != hostsock.None {
		e.host.Close(c.fd, true)
	}
	e.unlink(waiting, c)
	e.unlink(c.age.in, c)
	e.freeInBuf(c)
	e.freeOutBuf(c)
	e.freeBoard(c)
	e.timers.Free(c.timer)
	e.flows.Remove(c.flow)
	e.conns.Put(c.slot)
}
