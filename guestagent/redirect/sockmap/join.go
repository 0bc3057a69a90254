package sockmap

import (
	"bytes"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

const (
	// firstTry is how many bytes of a stream the agent copies before the kernel may:
	// short flows take no slot.
	firstTry = 256 << 10
	// retryStep is how many more it copies when there was no slot, doubled each time.
	retryStep = 1 << 20
	// maxTries is how often it asks for a slot.
	maxTries = 12

	// quiet is for how long nothing must have come before stuck buffers are moved,
	// and waiting the same for datagrams whose senders wait.
	quiet   = eventloop.Time(500 * time.Millisecond)
	waiting = eventloop.Time(20 * time.Millisecond)

	firstPoll = eventloop.Time(time.Millisecond)
	longPoll  = eventloop.Time(32 * time.Millisecond)
)

// join leaves the way out to the kernel. It is called when the agent has sent all
// that it has read, and its last read has taken whole buffers and left none: so
// what is in the queue by now, and what comes, is all that there is, and goes out
// in its order.
func (f *flow) join() {
	if f.state != copying || f.out.bytes < f.try || f.tries > maxTries {
		return
	}
	s := f.t.k.take()
	if s == nil {
		f.t.stats.NoSlot++
		f.try = f.out.bytes + retryStep<<f.tries
		f.tries++
		return
	}
	if err := s.insert(f.unix, f.vsock); err != nil {
		f.t.stats.Refused++
		f.t.log("sockmap: %v: the flow is copied", err)
		f.tries = maxTries + 1
		f.t.k.give(s)
		return
	}
	f.slot = s
	f.t.stats.Promoted++
	if q, err := lookAt(s.lookIn); err == nil && q.receive == 0 {
		f.state = redirecting
		f.moveOut() // which sees whether the source has ended meanwhile
		return
	}
	f.t.stats.Lagged++
	f.seen, f.since = s.redirected.Load(), f.t.loop.Now()
	f.wait(lagging)
}

// wait looks at the queues again and again.
func (f *flow) wait(s state) {
	f.state, f.poll, f.empty = s, firstPoll, false
	if f.timer == 0 {
		f.timer = f.t.loop.Timers().New(f, 0)
	}
	f.t.loop.Timers().Set(f.timer, f.t.loop.Now()+f.poll)
}

// Expired implements eventloop.Expirer.
func (f *flow) Expired(uint32) {
	if f.closed || f.out.done {
		return
	}
	waits := false
	switch f.state {
	case lagging:
		waits = f.lag()
	case draining:
		waits = f.drain()
	}
	if waits {
		f.poll = min(2*f.poll, longPoll)
		f.t.loop.Timers().Set(f.timer, f.t.loop.Now()+f.poll)
	}
	f.settle()
}

// drain waits until the output's queue is empty, which a buffer leaves when it has
// been sent; that is believed the second time. What is left in the source's own
// queue is the agent's.
func (f *flow) drain() (waits bool) {
	q, err := lookAt(f.slot.lookOut)
	if clear := err != nil || q.backlog == 0; !clear || !f.empty {
		f.empty = clear
		return true
	}
	f.state = finishing
	f.copyOut()
	return false
}

// lag looks after buffers that lay in the queue before the program came. Each one
// that arrives pushes the oldest out, so nothing is out of order, but when no more
// arrive as many are stuck: because the sender rests, or because they are all that
// it may have under way. Then the agent moves them.
func (f *flow) lag() (waits bool) {
	q, err := lookAt(f.slot.lookIn)
	switch {
	case err == nil && q.receive == 0:
		f.state = redirecting
		f.moveOut()
		return false
	case err != nil || f.out.holds():
		return true // its end is near, and will be told
	}
	if n := f.slot.redirected.Load(); n != f.seen {
		f.seen, f.since = n, f.t.loop.Now()
	}
	switch rests := f.t.loop.Now() - f.since; {
	case f.stream && (q.stopped || q.idle && rests >= quiet):
	case !f.stream && (rests >= quiet || q.full && rests >= waiting):
	default:
		return true
	}
	if q, err := lookAt(f.slot.lookOut); err != nil || q.backlog > 0 {
		return true
	}
	f.peek()
	return !f.closed
}

// peek reads what is stuck and leaves it there, so that a sender that has stopped
// goes on only when it has been sent.
func (f *flow) peek() {
	f.out.buf = f.t.takeBuffer()
	n, errno := recv(f.unix, f.out.buf[:longest], unix.MSG_PEEK)
	if errno != 0 || n <= 0 {
		f.out.rest(f.t)
		return
	}
	f.out.rd, f.out.wr, f.stuck = 0, n, n
	f.catchUp()
}

// catchUp sends what was stuck, and takes it. If the program has sent anything
// meanwhile then that has gone twice, and the flow cannot be mended.
func (f *flow) catchUp() (done bool) {
	switch f.out.flush() {
	case full:
		return false
	case gone:
		f.cut()
		return false
	case broken:
		f.close(f.out.errno)
		return false
	}
	torn := f.slot.redirected.Load() != f.seen
	if !torn {
		n, errno := recv(f.unix, f.out.buf[longest:][:f.stuck], 0)
		torn = errno != 0 || n != f.stuck || !bytes.Equal(f.out.buf[:n], f.out.buf[longest:][:n])
	}
	f.out.rest(f.t)
	if torn {
		f.t.stats.Torn++
		if f.stream {
			f.close(unix.ECONNABORTED)
			return false
		}
	}
	f.poll = firstPoll
	return true
}
