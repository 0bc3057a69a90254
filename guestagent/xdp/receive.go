package xdp

import (
	"context"
	"encoding/binary"
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/translate/wire"
	"guestwire/vnet/link"
)

// Receiver receives the datagrams to Flow.Dst that come in on a queue (by AF_XDP)
// or on any (by system calls).
type Receiver struct {
	load   Load
	verify bool
	sock   *Socket
	prog   *Program
	fd     int
	ZC     bool // as the kernel says

	batch [Batch][]byte
	buf   []byte
	pkt   wire.Packet
	frame link.Frame
	segs  [1][]byte
}

// NewReceiver opens the card, of so many queues, or a socket. With verify each
// datagram must be whole, as a Sender makes them.
func NewReceiver(l Load, queues int, verify bool) (r *Receiver, err error) {
	r = &Receiver{load: l, verify: verify, fd: -1}
	if l.By == BySyscall {
		r.buf = make([]byte, 1<<16)
		r.fd, err = udpSocket(l.Flow.Dst, waitMillis)
		return r, err
	}
	if r.sock, err = Open(Config{Index: l.Index, Queue: l.Queue, Mode: mode(l.By), Receive: true}); err != nil {
		return nil, err
	}
	r.ZC = r.sock.ZeroCopy()
	if r.prog, err = Attach(l.Index, queues, l.Flow.Dst.Port(), mode(l.By)); err == nil {
		err = r.prog.Lead(l.Queue, r.sock)
	}
	if err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// Close ends the receiver.
func (r *Receiver) Close() {
	if r.prog != nil {
		r.prog.Close()
	}
	if r.sock != nil {
		r.sock.Close()
	}
	if r.fd >= 0 {
		unix.Close(r.fd)
	}
}

// Statistics are the kernel's of the socket, without AF_XDP zeros.
func (r *Receiver) Statistics() (v unix.XDPStatistics, err error) {
	if r.sock == nil {
		return v, nil
	}
	return r.sock.Statistics()
}

// Run receives until the load is done or ctx ends, and calls tell once a second.
func (r *Receiver) Run(ctx context.Context, tell func(Count)) (c Count, err error) {
	m := newMeter(ctx, r.load.Duration, tell)
	for (r.load.Count == 0 || c.Packets < r.load.Count) && m.on(c) {
		if r.sock != nil {
			r.frames(&c)
		} else if err := r.calls(&c); err != nil {
			return c, err
		}
	}
	return c, nil
}

func (r *Receiver) frames(c *Count) {
	n := r.sock.Receive(r.batch[:])
	for _, b := range r.batch[:n] {
		p, ok := datagram(b)
		if ok && r.verify {
			ok = r.sound(b)
		}
		r.count(c, p, ok)
	}
	r.sock.Release()
	if n == 0 {
		r.sock.WaitRX(waitMillis)
	}
}

// sound says whether all checksums of a frame are right.
func (r *Receiver) sound(b []byte) bool {
	r.segs[0] = b
	r.frame = link.Frame{Len: len(b), Segs: r.segs[:]}
	return wire.Parse(&r.pkt, &r.frame) == wire.OK
}

func (r *Receiver) calls(c *Count) error {
	for range Batch {
		n, errno := receiveOne(r.fd, r.buf)
		switch errno {
		case 0:
			r.count(c, r.buf[:n], true)
		case unix.EAGAIN, unix.EINTR:
			return nil
		default:
			return fmt.Errorf("xdp: receive: %w", errno)
		}
	}
	return nil
}

func (r *Receiver) count(c *Count, payload []byte, ok bool) {
	c.Packets++
	c.Bytes += uint64(len(payload))
	if !r.verify {
		return
	}
	if !ok || !intact(payload) {
		c.Bad++
		return
	}
	c.Last = max(c.Last, binary.BigEndian.Uint64(payload))
	if c.Last+1 > c.Packets {
		c.Lost = c.Last + 1 - c.Packets
	} else {
		c.Lost = 0
	}
}
