package udp

import (
	"syscall"

	"guestwire/translate/hostsock"
	"guestwire/translate/icmp"
)

// flush sends the collected messages on fd.
func (e *Engine) flush(fd hostsock.FD) {
	o := &e.out
	retried := false
	for k := 0; k < o.n; {
		n, errno := e.d.Host.Send(fd, o.msgs[k:o.n])
		for range n {
			e.stats.toHost += uint64(o.from[k].segs)
			k++
			retried = false
		}
		if k == o.n || n > 0 && errno == 0 {
			continue
		}
		if errno == syscall.EAGAIN || errno == 0 {
			e.dropRest(k)
			break
		}
		// What an earlier datagram met is reported in the place of this one: look
		// at the error queue and try once more.
		if !retried && !tooLong(errno) {
			retried = true
			e.errors(o.from[k].conn)
			continue
		}
		retried = false
		e.refused(fd, k, errno)
		k++
	}
	clear(o.iov)
	clear(o.msgs[:o.n])
	o.n, o.iov = 0, o.iov[:0]
}

// dropRest: the socket's send buffer is full. The guest's memory cannot be
// kept, so the rest of the batch is lost, as in any full queue on the way.
func (e *Engine) dropRest(k int) {
	for ; k < e.out.n; k++ {
		e.stats.dropBusy += uint64(e.out.from[k].segs)
	}
}

// tooLong says whether a segmentation of smaller parts may succeed: EINVAL and
// EMSGSIZE for datagrams beyond the route's MTU, EIO where the device has no
// checksum offload.
func tooLong(e syscall.Errno) bool {
	return e == syscall.EMSGSIZE || e == syscall.EINVAL || e == syscall.EIO
}

// refused deals with message k that the kernel will not send.
func (e *Engine) refused(fd hostsock.FD, k int, errno syscall.Errno) {
	m, from := &e.out.msgs[k], &e.out.from[k]
	if m.SegSize == 0 || !tooLong(errno) {
		e.lost(from, 0, errno)
		return
	}
	c := e.conns.At(from.conn)
	c.maxRun = m.SegSize - 1
	if errno == syscall.EIO {
		c.maxRun = 0
	}
	e.stats.unsegmented++
	e.singly(fd, m, from)
}

// singly sends the datagrams of a run one by one.
func (e *Engine) singly(fd hostsock.FD, m *hostsock.Message, from *origin) {
	size := m.SegSize
	total := 0
	for _, b := range m.Bufs {
		total += len(b)
	}
	iov := e.out.iov
	for off := 0; off < total; off += size {
		one := *m
		one.SegSize = 0
		one.Bufs = cutSegs(iov[len(iov):], m.Bufs, off, min(size, total-off))
		e.out.one[0] = one
		n, errno := e.d.Host.Send(fd, e.out.one[:])
		switch {
		case n == 1:
			e.stats.toHost++
		case errno == syscall.EAGAIN:
			e.stats.dropBusy++
		default:
			e.lost(from, off, errno)
		}
	}
	e.out.one[0] = hostsock.Message{}
}

// lost counts a datagram that could not be sent, off bytes into its item, and
// tells the guest why.
func (e *Engine) lost(from *origin, off int, errno syscall.Errno) {
	e.stats.hostErrors++
	e.stats.dropHost++
	why, ok := icmp.ReasonOf(errno)
	if !ok || why == icmp.FragNeeded {
		return // the error queue knows the MTU
	}
	c, x := e.conns.At(from.conn), &e.batch.items[from.item]
	size := x.len
	if x.gso != 0 {
		size = min(x.gso, x.len-off)
	}
	n := 0
	for _, b := range e.segs(x) {
		if off >= len(b) {
			off -= len(b)
			continue
		}
		n += copy(e.quote[n:min(size, len(e.quote))], b[off:])
		off = 0
	}
	q := e.quoted(c, e.quote[:n])
	q.DataLen = size
	icmp.ReportReason(e.d.Port, &q, why)
}
