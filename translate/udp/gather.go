package udp

import "guestwire/translate/hostsock"

const (
	maxSegs  = 64         // datagrams of one UDP_SEGMENT send, on every kernel
	maxBytes = 65535 - 48 // of one send: IPv6 and UDP headers count
	maxIovs  = 1024       // UIO_MAXIOV
	maxOut   = 64         // messages of one sendmmsg
)

// outgoing collects messages for one socket.
type outgoing struct {
	msgs [maxOut]hostsock.Message
	from [maxOut]origin
	n    int
	iov  [][]byte
}

// origin is where a message came from.
type origin struct {
	conn uint32
	item uint16
	segs uint16 // datagrams in it
}

// run makes one message of item n of conn i and of as many that follow as may
// leave with it: datagrams of the same size and marks, the last may be shorter.
// It returns the item after them.
func (e *Engine) run(i uint32, c *conn, n uint16, fd hostsock.FD) (next uint16) {
	x := &e.batch.items[n]
	o := &e.out
	at := e.room(fd)
	o.iov = append(o.iov, e.segs(x)...)
	segs, total := 1, x.len
	next = x.next
	if x.len > 0 {
		for next != 0 && segs < maxSegs {
			y := &e.batch.items[next]
			if y.len == 0 || y.len > x.len || y.gso != 0 && y.gso < y.len || y.tos != x.tos || y.ttl != x.ttl ||
				total+y.len > maxBytes || len(o.iov)-at+int(y.segs) > maxIovs {
				break
			}
			o.iov = append(o.iov, e.segs(y)...)
			segs++
			total += y.len
			next = y.next
			if y.len < x.len {
				break
			}
		}
	}
	e.message(i, c, n, at, segs, x.len)
	return next
}

// super makes messages of item n, a USO frame of the guest.
func (e *Engine) super(i uint32, c *conn, n uint16, fd hostsock.FD) {
	x := &e.batch.items[n]
	per := max(1, min(maxSegs, maxBytes/x.gso))
	for off := 0; off < x.len; {
		size := min(per*x.gso, x.len-off)
		at := e.room(fd)
		e.out.iov = cutSegs(e.out.iov, e.segs(x), off, size)
		e.message(i, c, n, at, (size+x.gso-1)/x.gso, x.gso)
		off += size
	}
}

// segs is the payload of an item.
func (e *Engine) segs(x *item) [][]byte { return e.batch.segs[x.at : x.at+uint32(x.segs)] }

// room flushes if there is no place for another message, and returns where its
// buffers begin.
func (e *Engine) room(fd hostsock.FD) int {
	if e.out.n == maxOut {
		e.flush(fd)
	}
	return len(e.out.iov)
}

// message adds one with the buffers from at on.
func (e *Engine) message(i uint32, c *conn, n uint16, at, segs, size int) {
	o := &e.out
	m := &o.msgs[o.n]
	*m = hostsock.Message{Bufs: o.iov[at:len(o.iov):len(o.iov)], TOS: e.batch.items[n].tos}
	if segs > 1 {
		m.SegSize = size
	}
	if c.listener != 0 {
		f := e.d.Flows.At(c.flow)
		m.Addr, m.Local = f.Host, f.HostLocal
		if t := e.batch.items[n].ttl; t != usualTTL {
			m.TTL = t
		}
	}
	o.from[o.n] = origin{conn: i, item: n, segs: uint16(segs)}
	o.n++
}

// usualTTL is what most guests' datagrams leave with: near enough to what a
// socket has by default that saying so each time is not worth it.
const usualTTL = 63

// cutSegs appends the bytes [off, off+n) of segs to dst.
func cutSegs(dst, segs [][]byte, off, n int) [][]byte {
	for _, s := range segs {
		if off >= len(s) {
			off -= len(s)
			continue
		}
		s = s[off:]
		off = 0
		if len(s) >= n {
			return append(dst, s[:n:n])
		}
		dst = append(dst, s)
		n -= len(s)
	}
	return dst
}
