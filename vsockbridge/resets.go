package vsockbridge

import "guestwire/vsockbridge/packet"

// maxResets is how many resets may wait for receive buffers.
const maxResets = 256

// reset is one RST for a connection that does not exist.
type reset struct {
	key
	typ packet.Type
}

// resets is the bounded queue of them. It is only for connections that have no
// slot: those that have one owe theirs.
type resets struct {
	list  [maxResets]reset
	first int
	n     int
}

// withdraw takes out what waits for the ports of a new request: a late RST would
// be taken for its answer.
func (r *resets) withdraw(h *packet.Header) {
	k := answer(h)
	kept := 0
	for i := range r.n {
		if x := r.list[(r.first+i)%maxResets]; x.key != k {
			r.list[(r.first+kept)%maxResets] = x
			kept++
		}
	}
	r.n = kept
}

// answer is the connection that h would be of.
func answer(h *packet.Header) key {
	return key{peer: uint32(h.DstCID), peerPort: h.DstPort, port: h.SrcPort}
}

// refuse answers h with RST.
func (d *Device) refuse(h *packet.Header) {
	r := &d.resets
	if r.n == maxResets {
		d.counters.ResetsLost++
		return
	}
	r.list[(r.first+r.n)%maxResets] = reset{answer(h), h.Type}
	r.n++
}

// sendReset sends the first RST. It reports false when there is no chain.
func (d *Device) sendReset() bool {
	chain := d.rx.chain(d)
	if chain == nil {
		return false
	}
	r := &d.resets
	x := &r.list[r.first]
	h := packet.Header{
		SrcCID: uint64(x.peer), DstCID: d.cfg.CID,
		SrcPort: x.peerPort, DstPort: x.port,
		Type: x.typ, Op: packet.Reset,
	}
	r.first = (r.first + 1) % maxResets
	r.n--
	put(chain, &h)
	d.rx.push(chain, packet.Size)
	d.counters.RxPackets++
	d.counters.Resets++
	return true
}
