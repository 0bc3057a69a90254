package sockmap

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// state is how far a flow's way out is on its way into the kernel: see doc.go.
type state uint8

const (
	copying     state = iota // by the agent
	lagging                  // by the kernel, but what came before it may be stuck
	redirecting              // by the kernel
	draining                 // the source has ended: what the kernel has is waited for
	finishing                // by the agent again, to the end
)

// flow is a UNIX socket and a vsock stream that are joined. It is an
// eventloop.Source, by the cookies unixSide and vsockSide.
type flow struct {
	t          *Table
	prev, next *flow
	end        func(relay.Result)
	unix       int
	vsock      int
	stream     bool // the UNIX socket is one, and the way back exists
	tokens     [2]eventloop.Token
	masks      [2]eventloop.Events
	closed     bool

	out, back half // to the vsock, and from it
	state     state
	slot      *slot
	tries     int
	try       uint64 // out.bytes from which the next try is made
	hup       bool   // the UNIX socket's peer sends no more
	vsockHup  bool   // the vsock's peer sends no more
	timer     eventloop.TimerID
	poll      eventloop.Time
	empty     bool           // draining: the output's queue was seen empty once
	stuck     int            // lagging: bytes that were peeked
	seen      uint64         // lagging: what the program had redirected when it was looked at,
	since     eventloop.Time // and since when
}

const unixSide, vsockSide = 0, 1

// Ready implements eventloop.Source.
func (f *flow) Ready(cookie uint32, ev eventloop.Events) {
	hup := ev&(eventloop.RDHup|eventloop.HUP|eventloop.Err) != 0
	if cookie == unixSide {
		f.hup = f.hup || hup && f.stream
	} else {
		f.vsockHup = f.vsockHup || hup
	}
	if !f.back.done && (cookie == vsockSide || f.back.holds()) {
		f.moveBack()
	}
	if !f.closed && !f.out.done && cookie == vsockSide && hup && f.deaf(f.vsock) {
		f.cut()
	}
	if !f.closed && !f.out.done && (cookie == unixSide || f.out.holds()) {
		f.moveOut()
	}
	f.settle()
}

// Break implements eventloop.Breaker.
func (f *flow) Break(error) { f.close(unix.EFAULT) }

// moveBack moves what comes from the vsock.
func (f *flow) moveBack() {
	switch f.back.pump(f.t, f.vsockHup) {
	case again:
		f.t.loop.Again(f.tokens[vsockSide])
	case ended:
		f.back.finish(f.t)
		_ = unix.Shutdown(f.unix, unix.SHUT_WR)
	case gone:
		f.back.finish(f.t)
		_ = unix.Shutdown(f.vsock, unix.SHUT_RD)
	case broken:
		f.close(f.back.errno)
	}
}

// moveOut moves what goes to the vsock, as far as that is the agent's work.
func (f *flow) moveOut() {
	switch f.state {
	case copying, finishing:
		f.copyOut()
	case lagging, redirecting:
		if f.out.holds() && !f.catchUp() || f.closed {
			return
		}
		if f.hup {
			f.wait(draining)
		}
	}
}

func (f *flow) copyOut() {
	switch f.out.pump(f.t, false) {
	case dry:
		f.join()
	case again:
		f.t.loop.Again(f.tokens[unixSide])
	case ended:
		f.finishOut()
	case gone:
		f.cut()
	case broken:
		f.close(f.out.errno)
	}
}

// finishOut passes the end of the UNIX socket's peer on; all its bytes are sent.
func (f *flow) finishOut() {
	f.out.finish(f.t)
	_ = unix.Shutdown(f.vsock, unix.SHUT_WR)
	if !f.back.done && !f.back.holds() && f.deaf(f.unix) {
		f.back.finish(f.t)
		_ = unix.Shutdown(f.vsock, unix.SHUT_RD)
	}
}

// cut ends the way out since the vsock's peer takes nothing any more.
func (f *flow) cut() {
	if !f.stream {
		f.close(unix.EPIPE)
		return
	}
	f.out.finish(f.t)
	_ = unix.Shutdown(f.unix, unix.SHUT_RD)
}

// deaf says that a socket's peer takes nothing any more. Sending nothing tells.
func (f *flow) deaf(fd int) bool {
	if fd == f.unix && !f.stream {
		return false
	}
	_, errno := send(fd, nil)
	return errno == unix.EPIPE || errno == unix.ECONNRESET || errno == unix.ENOTCONN
}

// settle closes a flow whose two halves are done, else watches what they need.
func (f *flow) settle() {
	if f.closed {
		return
	}
	if f.out.done && f.back.done {
		f.close(0)
		return
	}
	reads := !f.out.done && (f.state == copying || f.state == finishing) && !f.out.holds()
	f.arm(unixSide, reads, f.back.holds())
	f.arm(vsockSide, !f.back.done && !f.back.holds(), f.out.holds())
}

// arm watches a side. What is not wanted must not wake the loop again and again:
// only the moment is told at which the peer goes.
func (f *flow) arm(side int, in, out bool) {
	ev := eventloop.RDHup
	if in {
		ev |= eventloop.In
	} else {
		ev |= eventloop.Edge
	}
	if out {
		ev |= eventloop.Out
	}
	if f.masks[side] != ev {
		f.masks[side] = ev
		_ = f.t.loop.Modify(f.tokens[side], ev)
	}
}

// close gives everything back.
func (f *flow) close(errno unix.Errno) {
	if f.closed {
		return
	}
	f.closed = true
	f.t.stats.Copied += f.out.bytes + f.back.bytes
	if f.slot != nil {
		n := f.slot.redirected.Load()
		f.out.bytes += n
		f.t.stats.Redirected += n
		f.slot.remove()
		f.t.k.give(f.slot)
		f.slot = nil
	}
	f.out.finish(f.t)
	f.back.finish(f.t)
	f.t.loop.Timers().Free(f.timer)
	for _, t := range f.tokens {
		f.t.loop.Remove(t)
	}
	unix.Close(f.unix)
	unix.Close(f.vsock)
	f.t.unlink(f)
	if f.end != nil {
		f.end(relay.Result{Bytes: [2]uint64{f.out.bytes, f.back.bytes}, Err: errno})
	}
}
