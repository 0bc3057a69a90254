package linktest

import "guestwire/vnet/link"

// Up is one call of LinkUp.
type Up struct {
	EP    link.Endpoint
	Caps  link.Caps
	Fresh bool
}

// Handler records what a device tells it. The hooks, where set, run after the
// recording and may call the endpoint.
type Handler struct {
	Discard    bool // only count frames; allocation free
	OnLinkUp   func(ep link.Endpoint, fresh bool)
	OnFrames   func(batch []link.Frame)
	OnWritable func()

	Ups       []Up
	Downs     int
	Gone      int     // calls of GuestGone
	Got       []Frame // frames of all batches, oldest first, unless Discard
	Batches   []int   // length of each batch, unless Discard
	Count     int     // frames
	Bytes     int
	Writables int
}

// EP is the endpoint of the last LinkUp, nil before the first.
func (h *Handler) EP() link.Endpoint {
	if len(h.Ups) == 0 {
		return nil
	}
	return h.Ups[len(h.Ups)-1].EP
}

// Up says whether the link is up.
func (h *Handler) Up() bool { return len(h.Ups) > h.Downs }

// LinkUp implements link.Handler.
func (h *Handler) LinkUp(ep link.Endpoint, fresh bool) {
	h.Ups = append(h.Ups, Up{EP: ep, Caps: ep.Caps(), Fresh: fresh})
	if h.OnLinkUp != nil {
		h.OnLinkUp(ep, fresh)
	}
}

// LinkDown implements link.Handler.
func (h *Handler) LinkDown() { h.Downs++ }

// GuestGone implements link.Handler.
func (h *Handler) GuestGone() { h.Gone++ }

// Frames implements link.Handler.
func (h *Handler) Frames(batch []link.Frame) {
	for i := range batch {
		h.Count++
		h.Bytes += batch[i].Len
		if !h.Discard {
			h.Got = append(h.Got, Flatten(&batch[i]))
		}
	}
	if !h.Discard {
		h.Batches = append(h.Batches, len(batch))
	}
	if h.OnFrames != nil {
		h.OnFrames(batch)
	}
}

// Writable implements link.Handler.
func (h *Handler) Writable() {
	h.Writables++
	if h.OnWritable != nil {
		h.OnWritable()
	}
}

// Reset forgets the recorded frames and batches; the link state stays.
func (h *Handler) Reset() {
	h.Got, h.Batches, h.Count, h.Bytes, h.Writables = nil, nil, 0, 0, 0
}

// Flatten copies a frame out of guest memory.
func Flatten(f *link.Frame) Frame {
	data := make([]byte, 0, f.Len)
	for _, s := range f.Segs {
		data = append(data, s...)
	}
	return Frame{Data: data, Off: f.Off}
}

// Batch makes frames, as a device would deliver them, of whole frames in
// private memory: segLen cuts each into segments of that length, 0 leaves it
// whole.
func Batch(segLen int, frames ...Frame) []link.Frame {
	batch := make([]link.Frame, len(frames))
	for i, f := range frames {
		batch[i] = link.Frame{Off: f.Off, Len: len(f.Data), Segs: Cut(segLen, f.Data)}
	}
	return batch
}

// Cut splits data into segments of segLen bytes; 0 leaves it whole.
func Cut(segLen int, data []byte) [][]byte {
	if segLen <= 0 {
		return [][]byte{data}
	}
	var segs [][]byte
	for len(data) > 0 {
		k := min(segLen, len(data))
		segs = append(segs, data[:k:k])
		data = data[k:]
	}
	return segs
}
