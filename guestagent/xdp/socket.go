package xdp

import (
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"
)

// Mode is how frames come from and go to the card.
type Mode uint8

const (
	ZeroCopy Mode = iota // the card reads and writes the UMEM itself
	Copy                 // the kernel copies
)

func (m Mode) String() string { return [...]string{"zero-copy", "copy"}[m] }

// Defaults, and the batch that one wake-up is for.
const (
	DefaultFrames    = 4096
	DefaultFrameSize = 2048
	ringSize         = 2048
	busyTime         = time.Second // a queue stays bound until the kernel's worker has released the last socket
	Batch            = 64
)

// Config says which queue of which card a socket is for.
type Config struct {
	Index     int // of the card
	Queue     int
	Mode      Mode
	Receive   bool // has an RX ring too
	Frames    int  // of the UMEM; 0: DefaultFrames
	FrameSize int  // bytes, 2048 or 4096; 0: DefaultFrameSize
}

// Socket is an AF_XDP socket with a UMEM of its own.
type Socket struct {
	fd   int
	cfg  Config
	zero bool
	mem  []byte
	maps [][]byte

	fill, completion ring[uint64]
	rx, tx           ring[unix.XDPDesc]

	free    []uint64 // frames to send, not in use
	out     int      // frames handed to the kernel and not completed
	queued  int      // of them, put into the TX ring since the last Flush
	held    int      // received frames that the caller has
	spoiled uint64   // entries from the kernel that were outside the UMEM
}

// Open makes a socket and binds it. With ZeroCopy it fails where zero copy cannot
// be had: the error is then the kernel's, which Probe explains.
func Open(c Config) (s *Socket, err error) {
	if c.Frames == 0 {
		c.Frames = DefaultFrames
	}
	if c.FrameSize == 0 {
		c.FrameSize = DefaultFrameSize
	}
	if c.FrameSize != 2048 && c.FrameSize != 4096 || c.Frames < 2*Batch || c.Frames > 1<<16 || c.Frames&(c.Frames-1) != 0 {
		return nil, fmt.Errorf("xdp: %d frames of %d bytes: use a power of two from %d to 65536, of 2048 or 4096 bytes", c.Frames, c.FrameSize, 2*Batch)
	}
	s = &Socket{cfg: c, fd: -1}
	defer func() {
		if err != nil {
			s.Close()
			s = nil
		}
	}()
	if s.fd, err = unix.Socket(unix.AF_XDP, unix.SOCK_RAW|unix.SOCK_CLOEXEC, 0); err != nil {
		return s, fmt.Errorf("xdp: socket: %w", err)
	}
	if err = s.memory(); err == nil {
		err = s.rings()
	}
	if err == nil {
		err = s.bind()
	}
	return s, err
}

// memory makes the UMEM and divides its frames.
func (s *Socket) memory() (err error) {
	n := s.cfg.Frames * s.cfg.FrameSize
	s.mem, err = unix.Mmap(-1, 0, n, unix.PROT_READ|unix.PROT_WRITE, unix.MAP_PRIVATE|unix.MAP_ANONYMOUS|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("xdp: %d bytes of frames: %w", n, err)
	}
	reg := unix.XDPUmemReg{Addr: addressOf(s.mem), Len: uint64(n), Size: uint32(s.cfg.FrameSize)}
	if err := setOption(s.fd, unix.XDP_UMEM_REG, &reg); err != nil {
		if errors.Is(err, unix.ENOBUFS) {
			err = fmt.Errorf("%w: %d bytes may not be locked: raise `ulimit -l` or run as root", err, n)
		}
		return fmt.Errorf("xdp: UMEM: %w", err)
	}
	first := 0
	if s.cfg.Receive {
		first = s.cfg.Frames / 2
	}
	s.free = make([]uint64, 0, s.cfg.Frames-first)
	for i := s.cfg.Frames - 1; i >= first; i-- {
		s.free = append(s.free, uint64(i*s.cfg.FrameSize))
	}
	return nil
}

func (s *Socket) rings() error {
	for _, o := range []int{unix.XDP_UMEM_FILL_RING, unix.XDP_UMEM_COMPLETION_RING, unix.XDP_TX_RING, unix.XDP_RX_RING} {
		if o == unix.XDP_RX_RING && !s.cfg.Receive {
			continue
		}
		n := int32(ringSize)
		if err := setOption(s.fd, o, &n); err != nil {
			return fmt.Errorf("xdp: ring: %w", err)
		}
	}
	var o unix.XDPMmapOffsets
	if n, err := getOption(s.fd, unix.XDP_MMAP_OFFSETS, &o); err != nil || n != offsetsSize {
		return fmt.Errorf("xdp: ring offsets of %d bytes, this takes Linux 5.4: %w", n, err)
	}
	err := errors.Join(
		mapRing(s, &s.fill, o.Fr, unix.XDP_UMEM_PGOFF_FILL_RING),
		mapRing(s, &s.completion, o.Cr, unix.XDP_UMEM_PGOFF_COMPLETION_RING),
		mapRing(s, &s.tx, o.Tx, unix.XDP_PGOFF_TX_RING))
	if s.cfg.Receive {
		err = errors.Join(err, mapRing(s, &s.rx, o.Rx, unix.XDP_PGOFF_RX_RING))
	}
	return err
}

func mapRing[T entry](s *Socket, to *ring[T], o unix.XDPRingOffset, page int64) error {
	mem, err := unix.Mmap(s.fd, page, int(o.Desc)+ringSize*entrySize[T](), unix.PROT_READ|unix.PROT_WRITE, unix.MAP_SHARED|unix.MAP_POPULATE)
	if err != nil {
		return fmt.Errorf("xdp: map a ring: %w", err)
	}
	s.maps = append(s.maps, mem)
	*to, err = newRing[T](mem, o, ringSize)
	return err
}

// bind gives the card its first frames before it is bound: it takes them then.
func (s *Socket) bind() error {
	if s.cfg.Receive {
		n := min(s.cfg.Frames/2, s.fill.room(ringSize))
		for i := range n {
			s.fill.put(i, uint64(i*s.cfg.FrameSize))
		}
		s.fill.submit(n)
	}
	mode := uint16(unix.XDP_ZEROCOPY)
	if s.cfg.Mode == Copy {
		mode = unix.XDP_COPY
	}
	to := unix.SockaddrXDP{Flags: mode | unix.XDP_USE_NEED_WAKEUP, Ifindex: uint32(s.cfg.Index), QueueID: uint32(s.cfg.Queue)}
	err := unix.Bind(s.fd, &to)
	for end := time.Now().Add(busyTime); errors.Is(err, unix.EBUSY) && time.Now().Before(end); err = unix.Bind(s.fd, &to) {
		time.Sleep(5 * time.Millisecond)
	}
	if err != nil {
		return fmt.Errorf("xdp: bind to queue %d with %v: %w", s.cfg.Queue, s.cfg.Mode, err)
	}
	var options uint32
	if _, err := getOption(s.fd, unix.XDP_OPTIONS, &options); err != nil {
		return fmt.Errorf("xdp: XDP_OPTIONS: %w", err)
	}
	s.zero = options&unix.XDP_OPTIONS_ZEROCOPY != 0
	if s.zero != (s.cfg.Mode == ZeroCopy) {
		return fmt.Errorf("xdp: asked for %v, the kernel says zero copy is %t", s.cfg.Mode, s.zero)
	}
	return nil
}

// Close ends the socket. The card gives back its frames before the memory goes.
func (s *Socket) Close() {
	if s.fd >= 0 {
		unix.Close(s.fd)
		s.fd = -1
	}
	for _, m := range append(s.maps, s.mem) {
		if m != nil {
			_ = unix.Munmap(m)
		}
	}
	s.maps, s.mem = nil, nil
}

// FD returns the descriptor, for the map of a Program.
func (s *Socket) FD() int { return s.fd }

// ZeroCopy is what the kernel says of the socket.
func (s *Socket) ZeroCopy() bool { return s.zero }

// Statistics are the kernel's counters of the socket.
func (s *Socket) Statistics() (v unix.XDPStatistics, err error) {
	_, err = getOption(s.fd, unix.XDP_STATISTICS, &v)
	return v, err
}
