package sockmap

import "golang.org/x/sys/unix"

const (
	// bufferSize holds a burst and behind it the longest read, or two of these.
	bufferSize = 2 * longest
	// burst is how much is read before it is written.
	burst = 256 << 10
	// longest is what one read asks for: more than a UNIX socket's queue holds, so
	// that no buffer of the kernel's is read in part. A datagram beyond it is
	// dropped.
	longest = 1 << 20
	// turnRounds is how many times a half is filled and drained before others have
	// their turn.
	turnRounds = 8
	// keep is how many buffers wait for the next half that needs one.
	keep = 8
)

// outcome is what a half's turn has come to.
type outcome uint8

const (
	dry    outcome = iota // the source has no more, and all it had is written
	full                  // the target takes no more
	again                 // there is more, but others have their turn first
	ended                 // the source has ended, and all it had is written
	gone                  // the target takes nothing any more
	broken                // by errno
)

// half is one direction while the agent itself moves the bytes. It has a buffer
// only while there is something in it.
type half struct {
	src, dst int
	dgram    bool // what comes are datagrams
	bytes    uint64
	done     bool
	errno    unix.Errno

	buf    []byte
	rd, wr int
	eof    bool
	dry    bool // the last read left nothing behind
}

func (h *half) holds() bool { return h.rd < h.wr }

// pump fills and drains, in turns. end says that a source with nothing to read
// has ended: sockets in a sock map do not say so themselves.
func (h *half) pump(t *Table, end bool) outcome {
	defer h.rest(t)
	for range turnRounds {
		if o := h.flush(); o != dry {
			return o
		}
		if h.dry {
			h.dry = false
			return dry
		}
		if h.eof {
			return ended
		}
		if !h.fill(t, end) {
			return broken
		}
	}
	return again
}

// flush writes what is held: dry, full, gone or broken.
func (h *half) flush() outcome {
	for h.holds() {
		n, errno := send(h.dst, h.buf[h.rd:h.wr])
		switch errno {
		case 0:
			h.rd += n
			h.bytes += uint64(n)
		case unix.EINTR:
		case unix.EAGAIN:
			return full
		case unix.EPIPE, unix.ECONNRESET, unix.ENOTCONN:
			return gone
		default:
			h.errno = errno
			return broken
		}
	}
	h.rd, h.wr = 0, 0
	return dry
}

// fill reads a burst; it reports false for an error.
func (h *half) fill(t *Table, end bool) bool {
	if h.buf == nil {
		h.buf = t.takeBuffer()
	}
	for h.wr < burst && !h.dry && !h.eof {
		b := h.buf[h.wr : h.wr+longest]
		flags := 0
		if h.dgram {
			flags = unix.MSG_TRUNC
		}
		n, errno := recv(h.src, b, flags)
		switch {
		case errno == unix.EINTR:
		case errno == unix.EAGAIN && end:
			h.eof = true
		case errno == unix.EAGAIN:
			h.dry = true
		case errno == unix.ECONNRESET && !h.dgram:
			h.eof = true // its peer closed before it had read everything: an end like any
		case errno != 0:
			h.errno = errno
			return false
		case n > longest:
			t.stats.TooLong++
		case n == 0 && !h.dgram:
			h.eof = true
		default:
			h.wr += n
			h.dry = !h.dgram && n < len(b) && !end
		}
	}
	return true
}

// rest gives the buffer back when nothing is in it.
func (h *half) rest(t *Table) {
	if !h.holds() && h.buf != nil {
		t.giveBuffer(h.buf)
		h.buf = nil
	}
}

// finish drops what is held.
func (h *half) finish(t *Table) {
	h.done = true
	h.rd, h.wr = 0, 0
	h.rest(t)
}
