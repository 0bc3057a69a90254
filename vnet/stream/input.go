package stream

import (
	"encoding/binary"

	"guestwire/vnet/link"
)

const (
	lenSize   = 4 // of the length in front of each frame
	ethHdrLen = 14
	minFrame  = 60

	inSize  = 256 << 10 // more than a UNIX socket holds by default
	inBatch = 64
)

// input cuts what is read into frames. Bytes [from, to) of buf are read and not
// yet handed on: after each turn less than one frame.
type input struct {
	buf      []byte
	from, to int
	frames   [inBatch]link.Frame
	segs     [inBatch][1][]byte
}

// verdict is what next found.
type verdict uint8

const (
	whole   verdict = iota // a frame
	partial                // the rest of it has not come yet
	lost                   // no frame can have that length
)

// next takes the next frame out of the buffer.
func (in *input) next() ([]byte, verdict) {
	have := in.buf[in.from:in.to]
	if len(have) < lenSize {
		return nil, partial
	}
	n := binary.BigEndian.Uint32(have)
	switch {
	case n == 0 || n > link.MaxFrame:
		return nil, lost
	case uint32(len(have)-lenSize) < n:
		return nil, partial
	}
	end := lenSize + int(n)
	in.from += end
	return have[lenSize:end:end], whole
}

// batch collects frames until there are inBatch of them or no more.
func (in *input) batch(s *Stats) (frames []link.Frame, v verdict) {
	n := 0
	for n < inBatch {
		var f []byte
		if f, v = in.next(); v != whole {
			break
		}
		if len(f) < ethHdrLen {
			s.Short++
			continue
		}
		s.TxFrames++
		s.TxBytes += uint64(len(f))
		in.segs[n][0] = f
		in.frames[n] = link.Frame{Len: len(f), Segs: in.segs[n][:]}
		n++
	}
	return in.frames[:n], v
}

// settle moves the beginning of a frame to the front of the buffer, where the
// rest of it has room.
func (in *input) settle() {
	in.to = copy(in.buf, in.buf[in.from:in.to])
	in.from = 0
}

// readable reads once and hands on every frame that is whole.
func (e *Endpoint) readable() {
	in := &e.in
	n, ok := e.read(in.buf[in.to:])
	if !ok {
		return
	}
	in.to += n
	for e.conn.fd >= 0 { // the handler may close us
		frames, v := in.batch(&e.stats)
		if len(frames) > 0 {
			e.h.Frames(frames)
			continue
		}
		if v == lost {
			e.stats.LostFraming++
			e.lost("sent a frame length that cannot be")
			return
		}
		if v == partial {
			in.settle()
			return
		}
	}
}
