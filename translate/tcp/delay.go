package tcp

import "guestwire/vring/eventloop"

// An ACK that goes alone costs the guest an interrupt, and us a call to cause it.
// Where the target answers at once, as servers of small requests do, the ACK
// waits for the answer and goes with it (RFC 9293 3.8.6.3). Whether that pays is
// learnt per connection: a wait that ends without an answer is the last one until
// answers have come fast again.
const (
	// ackHold is how long an ACK waits: several times what a server on this host
	// takes, and far less than the 0.5 s that are allowed, or than a guest's
	// retransmission timeout (200 ms).
	ackHold = eventloop.Time(200_000)

	// ackAnswers is how many answers within ackHold make a habit.
	ackAnswers = 2
)

// delayAck has the ACK of total bytes wait for the target's answer, if it is
// likely to come and the guest does not stream. A second piece is acknowledged
// at once.
func (e *Engine) delayAck(c *conn, total int) {
	if total == 0 || total >= e.sendMSS(c) || c.staged > 0 || c.state != Established || !c.has(fAckOwed) {
		return
	}
	if c.answers < ackAnswers || c.has(fAckHeld) || !e.host.AgainAt(c.fd, e.now()+ackHold) {
		c.clear(fAckHeld)
		c.set(fAckAlone)
		return
	}
	c.set(fAckHeld)
	e.stats.AcksHeld++
}

// answered notes that the ACK goes with data.
func (e *Engine) answered(c *conn) {
	if c.has(fAckHeld) || c.has(fAckAlone) && e.now()-c.heard < ackHold {
		c.answers = min(c.answers+1, ackAnswers)
		e.answers = c.answers
	}
	c.clear(fAckOwed | fAckHeld | fAckAlone)
}

// unanswered ends the wait of an ACK: it goes alone.
func (e *Engine) unanswered(c *conn) {
	if c.has(fAckHeld) {
		c.clear(fAckHeld)
		c.answers, e.answers = 0, 0
	}
}
