package tap

import (
	"golang.org/x/sys/unix"

	"guestwire/vnet/link"
	"guestwire/vring/eventloop"
)

const (
	inBatch = 64
	maxRead = HdrLen + link.MaxFrame
	// inSize has room for a full frame behind those of a batch. What is read is
	// sent on at once, so the smaller the arena the more of it is in the cache.
	inSize = 192<<10 + maxRead

	// What one turn may take before others have theirs.
	turnFrames = 256
	turnBytes  = 2 << 20
)

// input is where frames from the namespace are read to, one behind the other.
type input struct {
	buf    []byte
	frames [inBatch]link.Frame
	segs   [inBatch][1][]byte
}

// readable hands on what waits, within the budget of a turn. The descriptor is
// watched level-triggered, so what is left comes again.
func (e *Endpoint) readable() {
	for frames, bytes := turnFrames, turnBytes; frames > 0 && bytes > 0; {
		n, size, more := e.read()
		if n > 0 {
			e.stats.Batches++
			e.loop.Worked(eventloop.FromGuest, size)
			e.h.Frames(e.in.frames[:n])
		}
		if !more || e.fd < 0 { // the handler may close us
			return
		}
		frames, bytes = frames-inBatch, bytes-size
	}
}

// read reads one batch: n frames of size bytes. more says that there may be
// another.
func (e *Endpoint) read() (n, size int, more bool) {
	in := &e.in
	for n < inBatch && len(in.buf)-size >= maxRead {
		buf := in.buf[size : size+maxRead]
		k, errno := read(e.fd, buf)
		switch {
		case errno == unix.EAGAIN, errno == unix.EINTR:
			return n, size, false
		case errno != 0:
			e.lost = errno // told behind this batch
			e.loop.Again(e.token)
			return n, size, false
		}
		f := &in.frames[n]
		f.Len = k - HdrLen
		if f.Len < ethHdrLen || !Decode(&f.Off, buf, f.Len) {
			e.stats.Header++
			continue
		}
		in.segs[n][0] = buf[HdrLen:k:k]
		f.Segs = in.segs[n][:]
		e.stats.TxFrames++
		e.stats.TxBytes += uint64(f.Len)
		size += (k + 63) &^ 63
		n++
	}
	return n, size, true
}
