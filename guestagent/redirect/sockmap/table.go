package sockmap

import (
	"errors"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// Stats are counters over all flows of a Table.
type Stats struct {
	Open       uint64 // flows now
	Started    uint64
	Promoted   uint64 // flows that were left to the kernel
	Lagged     uint64 // of these, those that had something in front of the program
	Torn       uint64 // times that this cannot be known to have been sent in order
	NoSlot     uint64 // tries for which there was no slot
	Refused    uint64 // flows whose sockets the kernel would not have in a map
	Redirected uint64 // bytes that the kernel has moved
	Copied     uint64 // bytes that the agent has
	TooLong    uint64 // datagrams that were dropped
}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {
	f("sockmap_open", s.Open)
	f("sockmap_started", s.Started)
	f("sockmap_promoted", s.Promoted)
	f("sockmap_lagged", s.Lagged)
	f("sockmap_torn", s.Torn)
	f("sockmap_no_slot", s.NoSlot)
	f("sockmap_refused", s.Refused)
	f("sockmap_bytes_redirected", s.Redirected)
	f("sockmap_bytes_copied", s.Copied)
	f("sockmap_drop_too_long", s.TooLong)
}

// Table is the flows of one loop.
type Table struct {
	k       *Kernel
	loop    *eventloop.Loop
	log     func(string, ...any)
	buffers [][]byte
	flows   *flow
	stats   Stats
}

// NewTable makes a Table. log gets a line for a flow that the kernel refuses.
func (k *Kernel) NewTable(loop *eventloop.Loop, log func(string, ...any)) *Table {
	return &Table{k: k, loop: loop, log: log, buffers: make([][]byte, 0, keep)}
}

const (
	// sendBuffer is a vsock's: the kernel sends what was redirected while less than
	// half of it is under way, and looks again a tick later.
	sendBuffer = 8 << 20
	// window is the vsock's receive buffer. Newer kernels send no more than they
	// would receive.
	window = 4 << 20
)

// Start joins a UNIX socket, stream or datagram, to a vsock stream. Both belong
// to the flow from now on; ended is called once, on the loop, after they are
// closed, with the bytes that went to the vsock and came from it. When Start
// returns an error nothing has changed hands.
func (t *Table) Start(from, to relay.End, end func(relay.Result)) error {
	if err := enlarge(to.In); err != nil {
		return err
	}
	return t.start(from, to, end)
}

func (t *Table) start(from, to relay.End, end func(relay.Result)) error {
	f := &flow{t: t, end: end, unix: from.In, vsock: to.In, stream: from.Kind == relay.Stream}
	if f.stream {
		f.try = firstTry
	}
	f.out = half{src: f.unix, dst: f.vsock, dgram: !f.stream}
	f.back = half{src: f.vsock, dst: f.unix, done: !f.stream}
	for side, fd := range []int{f.unix, f.vsock} {
		f.masks[side] = eventloop.Edge | eventloop.RDHup
		token, err := t.loop.Add(fd, f.masks[side], f, uint32(side))
		if err != nil {
			t.loop.Remove(f.tokens[unixSide])
			return err
		}
		f.tokens[side] = token
	}
	if f.next = t.flows; f.next != nil {
		f.next.prev = f
	}
	t.flows = f
	t.stats.Started++
	t.stats.Open++
	f.settle()
	t.loop.Again(f.tokens[unixSide]) // datagrams are the kernel's before the first has come
	return nil
}

// enlarge sets the sizes without which the kernel would be slower than the agent.
func enlarge(vsock int) error {
	return errors.Join(unix.SetsockoptInt(vsock, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer),
		unix.SetsockoptUint64(vsock, unix.AF_VSOCK, unix.SO_VM_SOCKETS_BUFFER_MAX_SIZE, window),
		unix.SetsockoptUint64(vsock, unix.AF_VSOCK, unix.SO_VM_SOCKETS_BUFFER_SIZE, window))
}

func (t *Table) unlink(f *flow) {
	if f.prev != nil {
		f.prev.next = f.next
	} else {
		t.flows = f.next
	}
	if f.next != nil {
		f.next.prev = f.prev
	}
	f.prev, f.next = nil, nil
	t.stats.Open--
}

// Stats returns the counters. What the kernel moves is counted when a flow ends.
func (t *Table) Stats() Stats { return t.stats }

// Close ends all flows at once, without a word to their owners.
func (t *Table) Close() {
	for t.flows != nil {
		t.flows.end = nil
		t.flows.close(0)
	}
}

func (t *Table) takeBuffer() []byte {
	if n := len(t.buffers); n > 0 {
		b := t.buffers[n-1]
		t.buffers = t.buffers[:n-1]
		return b
	}
	return make([]byte, bufferSize)
}

func (t *Table) giveBuffer(b []byte) {
	if len(t.buffers) < cap(t.buffers) {
		t.buffers = append(t.buffers, b)
	}
}
