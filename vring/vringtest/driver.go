package vringtest

import "guestwire/vring"

// Features are the ring features a Driver uses.
type Features struct{ EventIdx, Indirect, InOrder bool }

// tableRoom is the number of descriptors in a Driver's indirect tables.
const tableRoom = 64

// Driver is a driver side with buffers: it sends bytes and posts room.
type Driver struct {
	Q    *vring.DriverQueue
	Ring *Ring
	Kick *Event

	chains []chain // by cookie
	spare  []uint32
	free   map[uint32][]uint64 // buffers by size
}

type chain struct{ segs []vring.DriverSeg }

// Used is one chain that came back.
type Used struct {
	Cookie  uint32
	Written uint32
	Data    []byte // the bytes written, a copy
}

// NewDriver starts a driver on r, which must be fresh or started at base.
func (r *Ring) NewDriver(f Features, base uint16) *Driver {
	r.Mem.tb.Helper()
	d := &Driver{Ring: r, Kick: NewEvent(r.Mem.tb), free: map[uint32][]uint64{}}
	c := r.DriverConfig()
	c.EventIdx, c.Indirect, c.InOrder, c.Base, c.CallFD = f.EventIdx, f.Indirect, f.InOrder, base, d.Kick.FD
	if f.Indirect {
		n := uint64(r.Size) * tableRoom * 16
		c.TablesGPA = r.Mem.Alloc(n, 16)
		c.Tables = r.Mem.Bytes(c.TablesGPA, n)
	}
	q, err := vring.NewDriverQueue(c)
	if err != nil {
		r.Mem.tb.Fatalf("NewDriverQueue: %v", err)
	}
	d.Q = q
	return d
}

func (d *Driver) buffer(size uint32) uint64 {
	if l := d.free[size]; len(l) > 0 {
		d.free[size] = l[:len(l)-1]
		return l[len(l)-1]
	}
	return d.Ring.Mem.Alloc(uint64(size), 1)
}

// Send adds a chain with one buffer for each of parts, copied to guest memory,
// and makes it available. It reports false when the ring is full.
func (d *Driver) Send(parts ...[]byte) (cookie uint32, ok bool) {
	segs := make([]vring.DriverSeg, 0, len(parts))
	for _, p := range parts {
		gpa := d.buffer(uint32(len(p)))
		copy(d.Ring.Mem.Bytes(gpa, uint64(len(p))), p)
		segs = append(segs, vring.DriverSeg{GPA: gpa, Len: uint32(len(p))})
	}
	return d.add(segs)
}

// Post adds a chain of writable buffers of the given sizes and makes it
// available. It reports false when the ring is full.
func (d *Driver) Post(sizes ...uint32) (cookie uint32, ok bool) {
	segs := make([]vring.DriverSeg, 0, len(sizes))
	for _, n := range sizes {
		segs = append(segs, vring.DriverSeg{GPA: d.buffer(n), Len: n, Write: true})
	}
	return d.add(segs)
}

func (d *Driver) add(segs []vring.DriverSeg) (cookie uint32, ok bool) {
	if n := len(d.spare); n > 0 {
		cookie, d.spare = d.spare[n-1], d.spare[:n-1]
	} else {
		cookie = uint32(len(d.chains))
		d.chains = append(d.chains, chain{})
	}
	d.chains[cookie] = chain{segs: segs}
	if _, ok = d.Q.Add(segs, cookie); !ok {
		d.recycle(cookie)
		return 0, false
	}
	d.Q.Publish()
	return cookie, true
}

func (d *Driver) recycle(cookie uint32) {
	for _, s := range d.chains[cookie].segs {
		d.free[s.Len] = append(d.free[s.Len], s.GPA)
	}
	d.chains[cookie] = chain{}
	d.spare = append(d.spare, cookie)
}

// Reap takes everything that came back.
func (d *Driver) Reap() []Used {
	var out []Used
	for {
		cookie, written, ok := d.Q.Used()
		if !ok {
			return out
		}
		u := Used{Cookie: cookie, Written: written}
		left := uint64(written)
		for _, s := range d.chains[cookie].segs {
			if s.Write {
				n := min(left, uint64(s.Len))
				u.Data = append(u.Data, d.Ring.Mem.Bytes(s.GPA, n)...)
				left -= n
			}
		}
		d.recycle(cookie)
		out = append(out, u)
	}
}
