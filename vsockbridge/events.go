package vsockbridge

import "encoding/binary"

const (
	eventSize      = 4 // struct virtio_vsock_event: le32 id
	transportReset = 0 // VIRTIO_VSOCK_EVENT_TRANSPORT_RESET
)

// sendEvent tells a guest that has outlived an earlier device that its
// connections are gone (5.10.6.8); its listeners survive. It is kept until there
// is a buffer for it. Frontends that keep the event queue to themselves cannot
// pass it on: such a guest finds out by the RST that its next packet is answered
// with.
func (d *Device) sendEvent() {
	q := d.rings[eventQueue]
	if q == nil || !d.enabled[eventQueue] {
		return
	}
	c := &d.rx.chains[0]
	for !q.Pop(c) {
		if !q.ArmKick() {
			return
		}
		q.DisarmKick()
	}
	n := 0
	if c.WriteLen >= eventSize {
		b := binary.LittleEndian.AppendUint32(d.scratch[:0], transportReset)
		for _, seg := range c.Writable {
			k := copy(seg, b)
			n, b = n+k, b[k:]
		}
		d.owesEvent = false
	}
	q.Push(c.Head, uint32(n))
	q.Publish()
}
