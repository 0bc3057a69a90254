package relay

import "golang.org/x/sys/unix"

// method is how a direction moves its bytes.
type method uint8

const (
	nowhere method = iota // there is no source or no target
	spliced               // through a pipe, unseen
	copied                // through a buffer
	records               // through a buffer, message by message
)

// verdict is what a run of a direction has come to.
type verdict uint8

const (
	waits    verdict = iota // for the source or the target, as the loop is told
	again                   // has more at hand, but others have their turn first
	srcEnded                // and all that it sent has been delivered
	dstGone                 // takes nothing any more
	broken                  // with an error: the whole pair cannot go on
)

// turnRounds is how many times a direction is filled and drained before others
// have their turn.
const turnRounds = 16

// shortRead is a read so small that most likely nothing is left behind it; level
// triggering tells when something is.
const shortRead = 16 << 10

// flow is one direction of a pair. Between turns it has a pipe or a buffer only
// while there is something in it.
type flow struct {
	method method
	ended  bool
	eof    bool // the source has ended; what is held must still go
	srcErr unix.Errno
	bytes  uint64

	pipe  pipe
	piped int // bytes in pipe

	buf      []byte
	from, to int  // what is to be written now
	has      bool // there is something to be written, if only an empty message
	rd, wr   int  // framed source: what was read and is not yet unframed
	frameIn  bool // the source is framed, and the target wants it bare
	frameOut bool // the other way round
}

// begin chooses the method for src -> dst.
func (f *flow) begin(r *Relay, src, dst End) {
	switch {
	case src.In < 0 || dst.Out < 0:
		f.method, f.ended = nowhere, true
	case src.Kind == dst.Kind && !src.Kind.messages() && r.c.Copy:
		f.method = copied
	case src.Kind == dst.Kind && !src.Kind.messages():
		f.method = spliced
	default:
		f.method = records
		f.frameIn, f.frameOut = src.Kind == Framed, dst.Kind == Framed
	}
}

func (f *flow) done() bool    { return f.ended }
func (f *flow) holds() bool   { return f.has || f.piped > 0 }
func (f *flow) wantsIn() bool { return !f.ended && !f.eof && !f.holds() }

// wantsTurn is wantsIn, or an end that is to be concluded.
func (f *flow) wantsTurn() bool { return !f.ended && !f.holds() }

// end gives back what the direction has borrowed.
func (f *flow) end(r *Relay) {
	f.ended = true
	f.has, f.rd, f.wr = false, 0, 0
	held := f.piped
	f.piped = 0
	r.pool.givePipe(f.pipe, held)
	r.pool.giveBuffer(f.buf)
	f.pipe, f.buf = noPipe, nil
}

// rest gives pipe and buffer back when nothing is in them.
func (f *flow) rest(r *Relay) {
	if f.piped == 0 && f.pipe.r >= 0 {
		r.pool.givePipe(f.pipe, 0)
		f.pipe = noPipe
	}
	if !f.has && f.rd == f.wr && f.buf != nil {
		r.pool.giveBuffer(f.buf)
		f.buf, f.rd, f.wr = nil, 0, 0
	}
}

// run fills from src and drains into dst, in turns.
func (f *flow) run(r *Relay, src, dst *end) (verdict, unix.Errno) {
	defer f.rest(r)
	for range turnRounds {
		more := true
		if !f.holds() {
			if f.eof {
				return srcEnded, f.srcErr
			}
			var v verdict
			var errno unix.Errno
			if more, v, errno = f.fill(r, src); v != waits {
				return v, errno
			}
		}
		if f.holds() {
			if v, errno := f.drain(r, dst); v != waits {
				return v, errno
			}
			if f.holds() {
				r.stats.Blocked++
				return waits, 0
			}
		}
		if !more && !f.eof {
			return waits, 0
		}
	}
	return again, 0
}

// fill reads once. more says that another read is worth its while.
func (f *flow) fill(r *Relay, src *end) (more bool, v verdict, errno unix.Errno) {
	switch f.method {
	case spliced:
		return f.fillPipe(r, src)
	case copied:
		return f.fillBytes(r, src)
	}
	return f.fillRecord(r, src)
}

func (f *flow) fillPipe(r *Relay, src *end) (more bool, v verdict, errno unix.Errno) {
	if f.pipe.r < 0 {
		if f.pipe, errno = r.pool.takePipe(); errno != 0 {
			return f.instead(r, src)
		}
	}
	r.stats.Reads++
	n, errno := splice(src.In, f.pipe.w, r.c.PipeSize)
	if errno == unix.EINVAL {
		return f.instead(r, src)
	}
	f.piped = n
	more, v, errno = f.came(src, n, errno)
	return more && n >= shortRead, v, errno
}

// instead goes on by copying: there are no descriptors left for a pipe, or the
// source cannot be spliced from.
func (f *flow) instead(r *Relay, src *end) (more bool, v verdict, errno unix.Errno) {
	r.pool.givePipe(f.pipe, 0)
	f.pipe, f.method = noPipe, copied
	return f.fillBytes(r, src)
}

func (f *flow) fillBytes(r *Relay, src *end) (more bool, v verdict, errno unix.Errno) {
	n, errno := f.read(r, src, FrameHeader, FrameHeader+copySize)
	f.from, f.to, f.has = FrameHeader, FrameHeader+n, n > 0
	more, v, errno = f.came(src, n, errno)
	return more && n >= shortRead, v, errno
}

// read reads once from a stream into buf[from:to].
func (f *flow) read(r *Relay, src *end, from, to int) (int, unix.Errno) {
	if f.buf == nil {
		f.buf = r.pool.takeBuffer()
	}
	r.stats.Reads++
	if src.inSock {
		return recv(src.In, f.buf[from:to], 0)
	}
	return read(src.In, f.buf[from:to])
}

// came judges what a read of a stream returned.
func (f *flow) came(src *end, n int, errno unix.Errno) (more bool, v verdict, _ unix.Errno) {
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return false, waits, 0
	case errno == unix.ECONNRESET && src.domain == unix.AF_UNIX:
		f.eof = true // its peer closed before it had read everything: an end like any
	case errno != 0:
		f.eof, f.srcErr = true, errno
	case n == 0:
		f.eof = true
	}
	return true, waits, 0
}

// drain writes once.
func (f *flow) drain(r *Relay, dst *end) (verdict, unix.Errno) {
	var n int
	var errno unix.Errno
	r.stats.Writes++
	switch {
	case f.piped > 0:
		n, errno = splice(f.pipe.r, dst.Out, f.piped)
		f.piped -= n
	case dst.outSok:
		n, errno = send(dst.Out, f.buf[f.from:f.to])
	default:
		n, errno = write(dst.Out, f.buf[f.from:f.to])
	}
	switch {
	case errno == unix.EAGAIN || errno == unix.EINTR:
		return waits, 0
	case errno == unix.EPIPE || errno == unix.ECONNRESET:
		return dstGone, errno
	case errno == unix.EMSGSIZE && dst.Kind == Datagram:
		r.stats.TooLong++
		n = f.to - f.from
	case errno == unix.EMSGSIZE && dst.widen(r.c.MaxMessage):
		return f.drain(r, dst)
	case errno != 0:
		return broken, errno
	}
	f.bytes += uint64(n)
	r.stats.Bytes += uint64(n)
	if f.has {
		f.from += n
		f.has = f.from < f.to
		if f.method == records && !f.has {
			r.stats.Messages++
		}
	}
	return waits, 0
}
