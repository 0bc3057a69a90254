package saturate

import (
	"encoding/binary"
	"net"
	"net/netip"
)

var be = binary.BigEndian

const (
	flagFIN = 1
	flagSYN = 2
	flagRST = 4
	flagPSH = 8
	flagACK = 16

	scale   = 8
	rxSpace = 4 << 20 // receive window of the synthetic guest
)

// conn is the guest end of one TCP connection, as simple as a lossless link
// allows.
type conn struct {
	g          *guest
	sport      uint16
	dport      uint16
	dst        netip.Addr
	nxt, una   uint32 // ours
	wnd        uint32 // the peer's window, bytes
	peerScale  uint
	rcv        uint32 // next byte expected
	acked      uint32 // last ACK sent
	up, closed bool
	got        int64 // payload bytes received in order
	bad        int   // segments that were not what is next
}

var (
	guestMAC = net.HardwareAddr{0x52, 0x54, 0, 0x12, 0x34, 0x56}
	ourMAC   = net.HardwareAddr{0x52, 0x55, 10, 0, 2, 2}
	guestIP  = netip.MustParseAddr("10.0.2.15")
)

// header writes virtio, Ethernet, IPv4 and TCP headers; checksums are left to
// the backend (NEEDS_CSUM) except IP's.
func (c *conn) header(b []byte, flags byte, n int, syn bool) int {
	clear(b)
	b[0] = 1 // NEEDS_CSUM
	tcpLen := 20
	if syn {
		tcpLen = 28
	}
	if n > 1460 {
		b[1] = 1 // GSO_TCPV4
		binary.LittleEndian.PutUint16(b[2:], headers)
		binary.LittleEndian.PutUint16(b[4:], 1460)
	}
	binary.LittleEndian.PutUint16(b[6:], 34)
	binary.LittleEndian.PutUint16(b[8:], 16)
	e := b[netHdr:]
	copy(e, ourMAC)
	copy(e[6:], guestMAC)
	be.PutUint16(e[12:], 0x0800)
	ip := e[14:]
	ip[0], ip[8], ip[9] = 0x45, 64, 6
	be.PutUint16(ip[2:], uint16(20+tcpLen+n))
	src, dst := guestIP.As4(), c.dst.As4()
	copy(ip[12:], src[:])
	copy(ip[16:], dst[:])
	be.PutUint16(ip[10:], ^sum(0, ip[:20]))
	t := ip[20:]
	be.PutUint16(t, c.sport)
	be.PutUint16(t[2:], c.dport)
	be.PutUint32(t[4:], c.nxt)
	be.PutUint32(t[8:], c.rcv)
	t[12], t[13] = byte(tcpLen/4)<<4, flags
	w := uint32(rxSpace >> scale)
	if syn {
		w = 65535
		copy(t[20:], []byte{2, 4, 1460 >> 8, 1460 & 255, 1, 3, 3, scale})
	}
	be.PutUint16(t[14:], uint16(w))
	pseudo := sum(uint32(6)+uint32(tcpLen+n), ip[12:20])
	be.PutUint16(t[16:], pseudo)
	return 14 + 20 + tcpLen
}

func sum(s uint32, b []byte) uint16 {
	for i := 0; i+1 < len(b); i += 2 {
		s += uint32(be.Uint16(b[i:]))
	}
	for s > 0xffff {
		s = s&0xffff + s>>16
	}
	return uint16(s)
}

// transmit sends one segment; it reports false when all frames are in flight.
func (c *conn) transmit(flags byte, n int) bool {
	i, ok := c.g.takeTX()
	if !ok {
		return false
	}
	syn := flags&flagSYN != 0
	l := c.header(c.g.frame(i), flags, n, syn)
	c.g.send(i, l, n)
	c.nxt += uint32(n)
	if syn || flags&flagFIN != 0 {
		c.nxt++
	}
	c.acked = c.rcv
	return true
}

// input takes a frame from the backend.
func (c *conn) input(b []byte) {
	e := b[netHdr:]
	if be.Uint16(e[12:]) != 0x0800 || e[14+9] != 6 {
		return // ARP, neighbour discovery
	}
	t := e[34:]
	if be.Uint16(t[2:]) != c.sport {
		return
	}
	flags := t[13]
	off := int(t[12]>>4) * 4
	if flags&flagRST != 0 {
		c.closed = true
		return
	}
	seq := be.Uint32(t[4:])
	if flags&flagSYN != 0 {
		for o := t[20:off]; len(o) > 2; {
			if o[0] == 1 {
				o = o[1:]
				continue
			}
			if o[0] == 3 {
				c.peerScale = uint(o[2])
			}
			if o[1] < 2 {
				break
			}
			o = o[o[1]:]
		}
		c.rcv, c.up = seq+1, true
		c.una = be.Uint32(t[8:])
		c.wnd = uint32(be.Uint16(t[14:]))
		return
	}
	if ack := be.Uint32(t[8:]); int32(ack-c.una) > 0 {
		c.una = ack
	}
	c.wnd = uint32(be.Uint16(t[14:])) << c.peerScale
	n := int(be.Uint16(e[16:])) - 20 - off
	switch {
	case n > 0 && seq != c.rcv:
		c.bad++
	case n > 0:
		c.rcv += uint32(n)
		c.got += int64(n)
	}
	if flags&flagFIN != 0 {
		c.rcv++
		c.closed = true
	}
}

// open connects to port at the address that stands for the host's loopback.
func (g *guest) open(sport, dport uint16) *conn {
	c := &conn{g: g, sport: sport, dport: dport, dst: netip.MustParseAddr("10.0.2.2"), nxt: uint32(sport) << 12}
	c.una = c.nxt
	c.transmit(flagSYN, 0)
	g.tx.Publish()
	for range 50 {
		g.received(c.input)
		if c.up {
			c.transmit(flagACK, 0)
			g.tx.Publish()
			return c
		}
		g.wait(true, false)
	}
	g.b.Fatal("no SYN-ACK within 5 s")
	return nil
}

// upload sends total bytes and returns when all are acknowledged.
func (c *conn) upload(total int64) {
	g := c.g
	for sent := int64(0); sent < total || c.una != c.nxt; {
		g.received(c.input)
		if c.closed {
			g.b.Fatal("connection reset during the upload")
		}
		queued := false
		blocked := false
		for sent < total && !blocked {
			n := min(int64(payload), total-sent)
			if int64(c.nxt-c.una)+n > int64(c.wnd) {
				break
			}
			if blocked = !c.transmit(flagACK|flagPSH, int(n)); !blocked {
				sent += n
				queued = true
			}
		}
		switch {
		case queued:
			g.tx.Publish()
		case blocked || c.una != c.nxt:
			g.wait(true, blocked)
		}
	}
}

// download receives total bytes, acknowledging each batch once.
func (c *conn) download(total int64) {
	g := c.g
	for goal := c.got + total; c.got < goal; {
		if !g.received(c.input) {
			g.wait(true, c.acked != c.rcv) // an ACK may be waiting for a frame
		}
		if c.closed {
			g.b.Fatalf("connection closed with %d bytes to come", goal-c.got)
		}
		if c.acked != c.rcv && c.transmit(flagACK, 0) {
			g.tx.Publish()
		}
	}
}
