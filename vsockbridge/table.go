package vsockbridge

// key names a connection of the guest's: by its own port, and by whom it talks
// to.
type key struct {
	peer     uint32 // CID: the host's or a sibling's
	peerPort uint32
	port     uint32
}

// hash mixes the ports; multiplication by an odd constant near 2^64/phi spreads
// consecutive ones, and its upper half is used.
func (k key) hash() uint32 {
	x := (uint64(k.peerPort)<<32 | uint64(k.port)) ^ uint64(k.peer)<<17
	return uint32((x * 0x9e3779b97f4a7c15) >> 32)
}

// blockConns is how many connections are allocated at a time. They do not move.
const blockConns = 64

// table holds the connections: in slots that keep their numbers, and found by
// key through open addressing with linear probing.
type table struct {
	blocks []*[blockConns]conn
	free   int32 // chain of vacant slots by conn.next, -1: none
	used   int   // slots that are not vacant
	limit  int

	index []int32 // slot+1 by hash, 0: empty; a power of two, at most half full
	keys  int
}

func newTable(limit int) table { return table{free: -1, limit: limit, index: make([]int32, 128)} }

func (t *table) at(i int32) *conn { return &t.blocks[i/blockConns][i%blockConns] }

// slots returns how many slots there are, vacant ones included.
func (t *table) slots() int32 { return int32(len(t.blocks)) * blockConns }

// full says whether there can be no more connections.
func (t *table) full() bool { return t.used == t.limit }

// find returns the connection of k, nil if there is none.
func (t *table) find(k key) *conn {
	mask := uint32(len(t.index) - 1)
	for i := k.hash() & mask; t.index[i] != 0; i = (i + 1) & mask {
		if c := t.at(t.index[i] - 1); c.key == k {
			return c
		}
	}
	return nil
}

// add makes a connection for k, which must not be there. The table must not be
// full.
func (t *table) add(k key) *conn {
	if t.free < 0 {
		t.extend()
	}
	i := t.free
	c := t.at(i)
	t.free = c.next
	*c = conn{slot: i, key: k, fd: -1, next: -1, listed: true}
	t.used++
	if 2*(t.keys+1) > len(t.index) {
		t.rehash()
	}
	t.keys++
	t.enter(c)
	return c
}

func (t *table) extend() {
	first := t.slots()
	b := new([blockConns]conn)
	t.blocks = append(t.blocks, b)
	for i := range b {
		b[i].next = first + int32(i) + 1
	}
	b[blockConns-1].next = -1
	t.free = first
}

func (t *table) rehash() {
	old := t.index
	t.index = make([]int32, 2*len(old))
	for _, v := range old {
		if v != 0 {
			t.enter(t.at(v - 1))
		}
	}
}

func (t *table) enter(c *conn) {
	mask := uint32(len(t.index) - 1)
	i := c.key.hash() & mask
	for t.index[i] != 0 {
		i = (i + 1) & mask
	}
	t.index[i] = c.slot + 1
}

// unlist takes the key of c out, so that it can be used again. Entries behind it
// that were displaced move up, so that no markers of deleted ones are needed.
func (t *table) unlist(c *conn) {
	if !c.listed {
		return
	}
	c.listed = false
	t.keys--
	mask := uint32(len(t.index) - 1)
	hole := c.key.hash() & mask
	for t.index[hole] != c.slot+1 {
		hole = (hole + 1) & mask
	}
	for i := (hole + 1) & mask; t.index[i] != 0; i = (i + 1) & mask {
		home := t.at(t.index[i]-1).key.hash() & mask
		if (i-home)&mask >= (i-hole)&mask {
			t.index[hole] = t.index[i]
			hole = i
		}
	}
	t.index[hole] = 0
}

// remove gives the slot of c back.
func (t *table) remove(c *conn) {
	t.unlist(c)
	i := c.slot
	*c = conn{next: t.free}
	t.free = i
	t.used--
}
