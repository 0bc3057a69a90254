package tcp

import "guestwire/vring/eventloop"

// watched are the events of every host socket, for its whole life: edges, so
// that nothing has to be disarmed when it cannot be served.
const watched = eventloop.In | eventloop.Out | eventloop.RDHup | eventloop.Edge

// ready takes the events of a host socket.
func (e *Engine) ready(slot uint32, ev eventloop.Events) {
	if !e.conns.Taken(slot) {
		return
	}
	c := e.conns.At(slot)
	if c.state == Connecting {
		if ev&(eventloop.In|eventloop.RDHup) != 0 {
			c.set(fHostReady)
		}
		if ev&(eventloop.Out|eventloop.Err|eventloop.HUP) != 0 {
			e.connected(c, ev)
		}
		e.finish(c)
		return
	}
	if ev&(eventloop.In|eventloop.RDHup|eventloop.HUP) != 0 {
		c.set(fHostReady)
	}
	if ev&(eventloop.RDHup|eventloop.HUP) != 0 {
		c.set(fHostEnd)
	}
	if ev&eventloop.Err != 0 && e.host.SocketError(c.fd) != 0 {
		e.hostFailed(c)
		e.finish(c)
		return
	}
	if ev&eventloop.Again != 0 {
		e.unanswered(c)
	}
	if ev&eventloop.Out != 0 && c.has(fHostFull) {
		e.shrink(c)
		c.clear(fHostFull)
	}
	e.output(c)
	e.finish(c)
}

// finish does what any event may have made due on a connection: write what is
// staged, end halves that are done, send an owed ACK, set the timer. Nothing
// else sends ACKs.
func (e *Engine) finish(c *conn) {
	e.finishWith(c, 0)
}

// finishWith is finish with the number of duplicate ACKs that are owed.
func (e *Engine) finishWith(c *conn, acks int) {
	if c.staged > 0 {
		e.drain(c)
	}
	e.settle(c)
	if c.state == Closed {
		return
	}
	if (c.state.synchronized() || c.state == SynReceived) && (acks > 0 || c.has(fAckOwed) && !c.has(fAckHeld) || c.state.takesData() && e.opened(c)) {
		if c.queue.in != waiting {
			e.ack(c, max(acks, 1))
		} else {
			c.set(fAckOwed)
		}
	}
	e.arm(c)
}

// settle ends the halves that are done: the guest's when the kernel has every
// byte, ours when the guest has ACKed the FIN.
func (e *Engine) settle(c *conn) {
	flushed := c.has(fFinIn) && !c.has(fFlushed) && c.staged == 0 && e.gathered(c) == 0
	if flushed {
		c.set(fFlushed)
	}
	acked := c.has(fFinQueued) && !c.has(fFinAcked) && c.finSeq.Less(c.una) && (!c.has(fFinIn) || c.has(fFlushed))
	if flushed && !acked { // else the host socket is closed, which says it as well
		e.event(c, Flushed)
	}
	if acked {
		c.set(fFinAcked)
		e.event(c, FinAcked)
	}
}

// gathered is how much of c's payload waits for the end of the batch.
func (e *Engine) gathered(c *conn) int {
	if c.batch == 0 {
		return 0
	}
	return int(e.batch[c.batch-1].bytes)
}

// endBatch finishes every connection that the batch touched.
func (e *Engine) endBatch() {
	for i := 0; i < len(e.batch); i++ {
		if e.batch[i].slot != 0 {
			e.endTouched(e.conns.At(e.batch[i].slot), i)
		}
	}
	e.batch, e.segs, e.runs, e.pending = e.batch[:0], e.segs[:0], e.runs[:0], 0
	if e.choked && !e.pool.tight() {
		e.choked = false
		e.serveWaiting()
	}
}

func (e *Engine) endTouched(c *conn, i int) {
	e.flush(c)
	if c.state == Closed {
		return
	}
	t := e.batch[i]
	c.batch = 0
	e.flows.Touch(c.flow, e.now())
	if c.has(fHostFull) && e.now()-c.fullAt > eventloop.Time(retryFull) {
		c.clear(fHostFull)
	}
	e.grow(c, int(t.total))
	if t.acked && c.state.synchronized() {
		if !e.consume(c) {
			e.event(c, HostError)
			return
		}
		e.recovery(c)
		e.output(c)
	}
	if c.state == Closed {
		return
	}
	acks := int(t.gaps)
	if acks == 0 {
		e.delayAck(c, int(t.total))
	}
	if acks > 0 && t.total > 0 {
		acks++ // one that moves, and so many duplicates of it
	}
	e.finishWith(c, acks)
}

// wait puts c behind those that wait for guest buffers, or for memory.
func (e *Engine) wait(c *conn) {
	e.push(waiting, c)
}

// serveWaiting goes round those that wait, once at most, until the guest has no
// more room. Who was served and wants more goes to the end of the queue; who got
// nothing keeps its place.
func (e *Engine) serveWaiting() {
	for range e.lists[waiting].n {
		c := e.first(waiting)
		if c == nil {
			return
		}
		e.unlink(waiting, c)
		e.full = false
		before := e.stats.SegmentsOut
		e.resume(c)
		if !e.full {
			continue
		}
		if e.stats.SegmentsOut == before && c.queue.in == waiting {
			e.unlink(waiting, c)
			e.pushFront(waiting, c)
		}
		return
	}
}

// resume sends what c could not send before.
func (e *Engine) resume(c *conn) {
	if c.has(fResetOwed) {
		c.clear(fResetOwed)
		e.reset(c)
		return
	}
	if c.has(fSynOwed) {
		c.clear(fSynOwed)
		e.handshakeSegment(c)
	}
	if c.has(fRtxOwed) {
		c.clear(fRtxOwed)
		e.recovery(c)
	}
	if c.state == Closed || c.queue.in == waiting {
		return
	}
	e.output(c)
	e.finish(c)
}
