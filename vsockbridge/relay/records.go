package relay

import "golang.org/x/sys/unix"

// fillRecord makes the next message ready: buf[from:to], with its length in
// front where the target is framed.
func (f *flow) fillRecord(r *Relay, src *end) (more bool, v verdict, errno unix.Errno) {
	if src.Kind.messages() {
		return f.fillMessage(r, src)
	}
	if !f.frameIn {
		more, v, errno = f.fillBytes(r, src)
		f.enframe(f.has)
		return more, v, errno
	}
	if f.unframe(r) || f.srcErr != 0 {
		return true, waits, 0
	}
	n, errno := f.read(r, src, f.wr, r.pool.bufSize)
	f.wr += n
	more, v, errno = f.came(src, n, errno)
	if f.eof && f.srcErr == 0 && f.rd < f.wr {
		f.srcErr = unix.EPROTO // it ended within a message
	}
	f.unframe(r)
	return more, v, errno
}

// fillMessage receives one message of a seqpacket or datagram socket.
func (f *flow) fillMessage(r *Relay, src *end) (more bool, v verdict, errno unix.Errno) {
	if f.buf == nil {
		f.buf = r.pool.takeBuffer()
	}
	r.stats.Reads++
	n, errno := recv(src.In, f.buf[FrameHeader:FrameHeader+r.c.MaxMessage], unix.MSG_TRUNC)
	switch {
	case errno != 0 && src.Kind == Datagram && errno != unix.EAGAIN && errno != unix.EINTR:
		return false, broken, errno
	case errno != 0:
		return f.came(src, 0, errno)
	case n > r.c.MaxMessage && src.Kind == Datagram:
		r.stats.TooLong++
		return true, waits, 0
	case n > r.c.MaxMessage:
		f.eof, f.srcErr = true, unix.EMSGSIZE
		return true, waits, 0
	case n == 0 && src.Kind == Seqpacket && Ended(src.In):
		f.eof = true
		return true, waits, 0
	}
	f.from, f.to = FrameHeader, FrameHeader+n
	f.enframe(true)
	return true, waits, 0
}

// Ended tells the end of a seqpacket socket from an empty message, both of which
// are read as 0: the peer writes no more, and nothing is left to be read. (Empty
// messages right before the end are taken for it.)
func Ended(fd int) bool {
	p := [1]unix.PollFd{{Fd: int32(fd), Events: unix.POLLRDHUP}}
	n, err := unix.Poll(p[:], 0)
	return err != nil || n > 0 && queued(fd) == 0
}

// enframe puts the length in front of buf[from:to], if the target wants it.
// Without it, an empty message is nothing to a stream.
func (f *flow) enframe(has bool) {
	f.has = has
	if has && f.frameOut {
		PutFrame(f.buf[f.from-FrameHeader:], f.to-f.from)
		f.from -= FrameHeader
	}
}

// unframe takes the next whole message out of buf[rd:wr].
func (f *flow) unframe(r *Relay) bool {
	if f.has || f.buf == nil {
		return f.has
	}
	n, whole, ok := Frame(f.buf[f.rd:f.wr], r.c.MaxMessage)
	switch {
	case !ok:
		f.eof, f.srcErr = true, unix.EMSGSIZE
		f.rd, f.wr = 0, 0
		return false
	case whole:
		f.from = f.rd + FrameHeader
		f.to = f.from + n
		f.rd, f.has = f.to, true
		return true
	case f.rd > 0:
		f.wr = copy(f.buf, f.buf[f.rd:f.wr])
		f.rd = 0
	}
	return false
}
