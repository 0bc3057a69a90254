package sockmap

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/cilium/ebpf"
	"github.com/cilium/ebpf/link"
	"golang.org/x/sys/unix"
)

// DefaultSlots is how many flows the kernel moves at a time.
const DefaultSlots = 128

// spare is how many slots are made ahead of the flows that will want them.
const spare = 2

// Kernel lends slots. It is shared by all loops.
type Kernel struct {
	look   *ebpf.Program
	max    int
	mu     sync.Mutex
	free   []*slot
	made   int
	making bool
	closed bool
	wait   sync.WaitGroup
}

// Open finds out whether this kernel can do it, and lets this process: the error
// says what is missing. max slots at most are made; 0: DefaultSlots.
func Open(max int) (*Kernel, error) {
	if max <= 0 {
		max = DefaultSlots
	}
	if err := checkKernel(); err != nil {
		return nil, err
	}
	if err := checkBarrier(); err != nil {
		return nil, err
	}
	l, err := readLayout()
	if err != nil {
		return nil, err
	}
	p, err := look(l)
	if err != nil {
		return nil, fmt.Errorf("the program that looks at queues (it needs CAP_BPF and CAP_PERFMON): %w", err)
	}
	k := &Kernel{look: p, max: max}
	s, err := k.newSlot()
	if err != nil {
		p.Close()
		return nil, fmt.Errorf("the program that redirects (it needs CAP_BPF and CAP_NET_ADMIN): %w", err)
	}
	k.free, k.made = []*slot{s}, 1
	return k, nil
}

// Close gives everything back. No flow has a slot by then.
func (k *Kernel) Close() {
	k.mu.Lock()
	k.closed = true
	k.mu.Unlock()
	k.wait.Wait()
	for _, s := range k.free {
		s.close()
	}
	k.look.Close()
}

// take lends a slot, nil when there is none now.
func (k *Kernel) take() (s *slot) {
	k.mu.Lock()
	defer k.mu.Unlock()
	if n := len(k.free); n > 0 {
		s = k.free[n-1]
		k.free = k.free[:n-1]
	}
	if len(k.free) < spare && k.made < k.max && !k.making && !k.closed {
		k.making = true
		k.wait.Go(k.make)
	}
	return s
}

// make makes slots until enough lie ready. That takes milliseconds, which is why
// no loop does it.
func (k *Kernel) make() {
	for {
		s, err := k.newSlot()
		k.mu.Lock()
		if err == nil {
			k.free = append(k.free, s)
			k.made++
		}
		if err != nil || len(k.free) >= spare || k.made == k.max || k.closed {
			k.making = false
			k.mu.Unlock()
			return
		}
		k.mu.Unlock()
	}
}

// give takes back a slot whose sockets have left it. It is lent again once every
// run of its program has ended.
func (k *Kernel) give(s *slot) {
	k.wait.Go(func() {
		membarrier()
		s.redirected.Store(0)
		k.mu.Lock()
		k.free = append(k.free, s)
		k.mu.Unlock()
	})
}

// slot is what one flow needs in the kernel.
type slot struct {
	in, out, counter *ebpf.Map
	program          *ebpf.Program
	lookIn, lookOut  *link.Iter
	page             []byte
	redirected       *atomic.Uint64 // bytes so far, in page
}

func (k *Kernel) newSlot() (_ *slot, err error) {
	s := &slot{}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	for _, m := range []struct {
		to   **ebpf.Map
		spec ebpf.MapSpec
	}{
		{&s.in, ebpf.MapSpec{Name: "gw_in", Type: ebpf.SockMap, KeySize: 4, ValueSize: 4, MaxEntries: 1}},
		{&s.out, ebpf.MapSpec{Name: "gw_out", Type: ebpf.SockMap, KeySize: 4, ValueSize: 4, MaxEntries: 1}},
		{&s.counter, ebpf.MapSpec{Name: "gw_count", Type: ebpf.Array, KeySize: 4, ValueSize: counterSize, MaxEntries: 1, Flags: unix.BPF_F_MMAPABLE}},
	} {
		if *m.to, err = ebpf.NewMap(&m.spec); err != nil {
			return nil, err
		}
	}
	if s.page, err = unix.Mmap(s.counter.FD(), 0, unix.Getpagesize(), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED); err != nil {
		return nil, err
	}
	s.redirected = counterAt(s.page)
	if s.program, err = verdict(s.counter, s.out); err != nil {
		return nil, err
	}
	if err = link.RawAttachProgram(link.RawAttachProgramOptions{Target: s.in.FD(), Program: s.program, Attach: ebpf.AttachSkSKBVerdict}); err != nil {
		return nil, err
	}
	if s.lookIn, err = link.AttachIter(link.IterOptions{Program: k.look, Map: s.in}); err != nil {
		return nil, err
	}
	s.lookOut, err = link.AttachIter(link.IterOptions{Program: k.look, Map: s.out})
	return s, err
}

func (s *slot) close() {
	for _, c := range []*link.Iter{s.lookIn, s.lookOut} {
		if c != nil {
			c.Close()
		}
	}
	if s.program != nil {
		s.program.Close()
	}
	if s.page != nil {
		_ = unix.Munmap(s.page)
	}
	for _, m := range []*ebpf.Map{s.in, s.out, s.counter} {
		if m != nil {
			m.Close()
		}
	}
}

// insert puts the sockets in: the output first, so that the program never finds
// it missing. From then on the program redirects.
func (s *slot) insert(from, to int) error {
	if err := s.out.Put(uint32(0), uint32(to)); err != nil {
		return fmt.Errorf("output: %w", err)
	}
	if err := s.in.Put(uint32(0), uint32(from)); err != nil {
		return errors.Join(fmt.Errorf("input: %w", err), s.out.Delete(uint32(0)))
	}
	return nil
}

// remove takes the sockets out. One that the peer has closed may have left by
// itself.
func (s *slot) remove() {
	_ = s.in.Delete(uint32(0))
	_ = s.out.Delete(uint32(0))
}

// queues is what waits at a socket.
type queues struct {
	receive uint32 // buffers that the program has not seen yet
	backlog uint32 // redirected buffers that are not sent yet
	full    bool   // receive is all that a datagram socket may have: its senders wait
	idle    bool   // the peer of a UNIX stream has nothing else under way
	stopped bool   // and it can send no more until some of receive are taken
}

var errNotThere = errors.New("the socket has left the map")

// lookAt reads a socket's queues by one of the iterators.
func lookAt(it *link.Iter) (q queues, err error) {
	r, err := it.Open()
	if err != nil {
		return q, err
	}
	defer r.Close()
	var b [lookSize]byte
	if _, err := io.ReadFull(r, b[:]); err != nil {
		return q, errNotThere
	}
	u32 := func(at int) uint32 { return binary.NativeEndian.Uint32(b[at:]) }
	sent, most, queued := u32(8), u32(12), u32(16)
	idle := most > 0 && sent == queued+1 // sk_wmem_alloc is one more than the bytes
	return queues{receive: u32(0), backlog: u32(4), full: u32(0) > u32(20), idle: idle, stopped: idle && queued >= most}, nil
}
