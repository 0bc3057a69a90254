package tcp

import (
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// window is the window field for the next segment to the guest. It moves the
// right edge on where there is reason to, never back (RFC 9293 3.8.6.2.1). What
// the scale cannot express is not advertised, but honoured if it was before (RFC
// 7323 2.4): rounding up would move the edge on with every ACK.
func (e *Engine) window(c *conn) uint16 {
	c.edge = e.nextEdge(c)
	return uint16(min(max(c.edge.Diff(c.rcvNxt), 0)>>c.rshift, 0xffff))
}

// room is the window that the connection may have while nothing is staged.
func (e *Engine) room(c *conn) int {
	if e.pool.tight() {
		return min(int(c.allow), chunkSize)
	}
	return int(c.allow)
}

// nextEdge is the right edge that an ACK sent now would advertise.
func (e *Engine) nextEdge(c *conn) wire.Seq {
	room := e.room(c)
	want := c.rcvNxt.Add(max(room-int(c.staged), 0))
	// Silly window avoidance (RFC 9293 3.8.6.2.2).
	if int(want.Diff(c.edge)) < min(int(c.mss), room/2) {
		return c.edge
	}
	return want
}

// opened says whether a window update is due although the guest sent nothing:
// the window is, or soon will be, what holds the guest up, and has opened well.
func (e *Engine) opened(c *conn) bool {
	room := e.room(c)
	return int(c.edge.Diff(c.rcvNxt)) < room/2 && int(e.nextEdge(c).Diff(c.edge)) >= room/4
}

// grow raises the allowance of a connection whose target keeps up, so that the
// guest does not have to wait for an ACK before we see its next batch.
func (e *Engine) grow(c *conn, batch int) {
	if batch == 0 || c.has(fHostFull) || c.staged > 0 || e.pool.tight() {
		return
	}
	want := batch * growPart
	if want <= int(c.allow) {
		return
	}
	want = max(want, activeWindow)
	c.allow = uint32(min(want, 2*int(c.allow), e.cfg.WindowMax, 0xffff<<c.rshift))
}

// shrink lowers the allowance of a connection whose target was slow to take
// what the kernel already has: more would only wait.
func (e *Engine) shrink(c *conn) {
	if e.now()-c.fullAt > eventloop.Time(blockedLong) {
		c.allow = min(c.allow, max(c.allow/2, activeWindow))
	}
}
