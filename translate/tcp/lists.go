package tcp

// listID names a list of connections; each is a FIFO linked through the
// connections themselves.
type listID uint8

const (
	noList    listID = iota
	waiting          // for guest buffers
	halfOpen         // not established yet, oldest first
	lingering        // TimeWait and Aborted, oldest first
	nLists
)

type list struct {
	head, tail uint32
	n          int
}

// place is where a connection is in a list. A connection can wait and be of an age
// at the same time, so it has two.
type place struct {
	prev, next uint32
	in         listID
}

func (c *conn) place(id listID) *place {
	if id == waiting {
		return &c.queue
	}
	return &c.age
}

// push appends c to list id, unless it is there.
func (e *Engine) push(id listID, c *conn) {
	k := c.place(id)
	if k.in == id {
		return
	}
	l := &e.lists[id]
	*k = place{prev: l.tail, in: id}
	if l.tail != 0 {
		e.conns.At(l.tail).place(id).next = c.slot
	} else {
		l.head = c.slot
	}
	l.tail = c.slot
	l.n++
}

// pushFront puts c, which is in no list of this kind, in front of list id.
func (e *Engine) pushFront(id listID, c *conn) {
	l := &e.lists[id]
	*c.place(id) = place{next: l.head, in: id}
	if l.head != 0 {
		e.conns.At(l.head).place(id).prev = c.slot
	} else {
		l.tail = c.slot
	}
	l.head = c.slot
	l.n++
}

// unlink takes c out of list id, if it is there.
func (e *Engine) unlink(id listID, c *conn) {
	k := c.place(id)
	if k.in != id || id == noList {
		return
	}
	l := &e.lists[id]
	if k.prev != 0 {
		e.conns.At(k.prev).place(id).next = k.next
	} else {
		l.head = k.next
	}
	if k.next != 0 {
		e.conns.At(k.next).place(id).prev = k.prev
	} else {
		l.tail = k.prev
	}
	*k = place{}
	l.n--
}

// first is the connection that has been in list id for longest, nil for none.
func (e *Engine) first(id listID) *conn {
	if e.lists[id].head == 0 {
		return nil
	}
	return e.conns.At(e.lists[id].head)
}
