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
		if !retried {
			retried = true
			e.errors(o.from[k].conn)
			continue
		}
		retried = false
		e.lost(&o.from[k], errno)
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

// lost counts what could not be sent and tells the guest why, with the first of
// the datagrams quoted.
func (e *Engine) lost(from *origin, errno syscall.Errno) {
	e.stats.hostErrors++
	e.stats.dropHost += uint64(from.segs)
	why, ok := icmp.ReasonOf(errno)
	if !ok || why == icmp.FragNeeded {
		return // the error queue knows the MTU
	}
	c, x := e.conns.At(from.conn), &e.batch.items[from.item]
	size := x.len
	if x.gso != 0 {
		size = min(x.gso, x.len)
	}
	n := 0
	for _, b := range e.segs(x) {
		n += copy(e.quote[n:min(size, len(e.quote))], b)
	}
	q := e.quoted(c, e.quote[:n])
	q.DataLen = size
	icmp.ReportReason(e.d.Port, &q, why)
}
