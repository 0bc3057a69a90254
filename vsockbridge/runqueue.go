package vsockbridge

// runQueue is the queue of connections that have something for the guest: in
// turn, each gets a part of the receive ring.
type runQueue struct{ head, tail int32 }

func (d *Device) enqueue(c *conn) {
	if c.queued {
		return
	}
	c.queued, c.next = true, -1
	if d.queue.head < 0 {
		d.queue.head = c.slot
	} else {
		d.conns.at(d.queue.tail).next = c.slot
	}
	d.queue.tail = c.slot
}

// putBack makes c, which was popped, the first again.
func (q *runQueue) putBack(c *conn) {
	if c.queued {
		return
	}
	if c.queued, c.next = true, q.head; q.head < 0 {
		q.tail = c.slot
	}
	q.head = c.slot
}

// pop takes the first connection out of the queue.
func (q *runQueue) pop(t *table) *conn {
	if q.head < 0 {
		return nil
	}
	c := t.at(q.head)
	q.head, c.queued = c.next, false
	return c
}

// remove takes c out, wherever it is.
func (q *runQueue) remove(t *table, c *conn) {
	if q.head == c.slot {
		q.head = c.next
	} else {
		p := t.at(q.head)
		for p.next != c.slot {
			p = t.at(p.next)
		}
		p.next = c.next
		if q.tail == c.slot {
			q.tail = p.slot
		}
	}
	c.queued = false
}
