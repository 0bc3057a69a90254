package serve

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"

	"github.com/mdlayher/vsock"
	"golang.org/x/sys/unix"

	"guestwire/guestagent/proto"
	"guestwire/guestagent/setup"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

const (
	maxPairs    = 1024
	connectTime = 5 * time.Second
)

// services are what is exposed. Its fields below mu may be touched by whoever
// holds that; the relay is the loop's alone.
type services struct {
	listen func(port uint32, buffer int) (net.Listener, error)
	setup  *setup.Setup
	log    func(string, ...any)
	loop   *eventloop.Loop
	relay  *relay.Relay
	ran    chan error // what Loop.Run has returned
	wait   sync.WaitGroup

	mu      sync.Mutex
	running bool // the loop
	pairs   int  // of all services, those of stopped ones too
	open    map[uint32]*service
	handed  []pairing // on their way to the loop
}

// service is one of them.
type service struct {
	port    uint32
	target  string
	network string // as net.Dial has it
	address string
	stop    context.CancelFunc
	pairs   int // under mu of services
}

type pairing struct {
	s    *service
	a, b int // descriptors
}

func newServices(c *Config) (*services, error) {
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		return nil, err
	}
	return &services{
		listen: c.Listen, setup: c.Setup, log: c.Log, loop: loop, ran: make(chan error, 1), open: map[uint32]*service{},
		relay: relay.New(relay.Config{MaxPairs: maxPairs}, loop),
	}, nil
}

// start exposes a target at a port, until stop or ctx.
func (e *services) start(ctx context.Context, target string, port uint32) (x proto.Exposed, err error) {
	s := &service{target: target}
	s.network, s.address, _ = strings.Cut(target, ":")
	if s.network == "tcp" {
		if _, p, err := net.SplitHostPort(s.address); err != nil || p == "" {
			return x, fmt.Errorf("%s: write tcp:ADDRESS:PORT", target)
		}
	}
	e.mu.Lock()
	defer e.mu.Unlock()
	switch {
	case len(e.open) >= proto.MaxExposed:
		return x, fmt.Errorf("%d services are exposed already: stop one", len(e.open))
	case e.open[port] != nil:
		return x, fmt.Errorf("port %d is %s already: stop that first", port, e.open[port].target)
	}
	l, err := e.listen(port, e.setup.Buffer())
	if err != nil {
		return x, fmt.Errorf("listen on vsock port %d: %w", port, err)
	}
	if a, ok := l.Addr().(*vsock.Addr); ok {
		port = a.Port
	}
	s.port = port
	e.open[port] = s
	ctx, s.stop = context.WithCancel(ctx)
	context.AfterFunc(ctx, func() { l.Close() })
	if !e.running {
		e.running = true
		go func() { e.ran <- e.loop.Run() }()
	}
	e.wait.Go(func() { accept(ctx, l, e.log, func(c net.Conn) { e.admit(ctx, s, c) }) })
	return proto.Exposed{Port: port, Target: target}, nil
}

// stop ends the listening; connections go on.
func (e *services) stop(port uint32) (x proto.Exposed, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	s := e.open[port]
	if s == nil {
		return x, fmt.Errorf("nothing is exposed at port %d", port)
	}
	delete(e.open, port)
	s.stop()
	return proto.Exposed{Port: port, Target: s.target, Connections: s.pairs}, nil
}

func (e *services) list() []proto.Exposed {
	e.mu.Lock()
	defer e.mu.Unlock()
	list := []proto.Exposed{}
	for _, s := range e.open {
		list = append(list, proto.Exposed{Port: s.port, Target: s.target, Connections: s.pairs})
	}
	slices.SortFunc(list, func(a, b proto.Exposed) int { return cmp.Compare(a.Port, b.Port) })
	return list
}

// admit serves a client, if there is a place for it.
func (e *services) admit(ctx context.Context, s *service, c net.Conn) {
	if !e.count(s, 1) {
		e.log("exposed port %d: %d connections are open: another is refused", s.port, maxPairs)
		c.Close()
		return
	}
	e.wait.Go(func() {
		p, err := connect(ctx, s, c)
		if err != nil {
			e.count(s, -1)
			e.log("exposed port %d: %v", s.port, err)
			return
		}
		e.hand(p)
	})
}

// count counts a connection more or less; false: it would be too many.
func (e *services) count(s *service, by int) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.pairs+by > maxPairs {
		return false
	}
	e.pairs += by
	s.pairs += by
	return true
}

// hand passes a pair on to the loop. However many come at once, they take one
// letter in its mailbox, which thus has always room.
func (e *services) hand(p pairing) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.handed = append(e.handed, p); len(e.handed) == 1 {
		_ = e.loop.Do(e.take) // else the loop has ended, and close is next
	}
}

// connect returns the descriptors of a client and of the service.
func connect(ctx context.Context, s *service, c net.Conn) (p pairing, err error) {
	defer c.Close() // of which takeFD has a copy
	d := net.Dialer{Timeout: connectTime}
	t, err := d.DialContext(ctx, s.network, s.address)
	if err != nil {
		return p, err
	}
	defer t.Close()
	p.s = s
	if p.a, err = takeFD(c); err != nil {
		return p, err
	}
	if p.b, err = takeFD(t); err != nil {
		unix.Close(p.a)
		return p, err
	}
	return p, nil
}

// take joins what was handed over. It runs on the loop.
func (e *services) take() {
	e.mu.Lock()
	list := e.handed
	e.handed = nil
	e.mu.Unlock()
	for _, p := range list {
		_, err := e.relay.Start(relay.Socket(p.a, relay.Stream), relay.Socket(p.b, relay.Stream), func(relay.Result) { e.count(p.s, -1) })
		if err != nil {
			e.log("exposed port %d: %v", p.s.port, err)
			e.drop(p)
		}
	}
}

// drop gives up a pair that is not joined.
func (e *services) drop(p pairing) {
	unix.Close(p.a)
	unix.Close(p.b)
	e.count(p.s, -1)
}

// close ends everything. The context of start has ended.
func (e *services) close() (err error) {
	e.wait.Wait()
	if e.running {
		e.loop.Stop()
		err = <-e.ran
	}
	for _, p := range e.handed {
		e.drop(p)
	}
	e.relay.Close()
	e.loop.Close()
	return err
}

// takeFD returns a descriptor of our own for a socket that Go has opened.
func takeFD(c net.Conn) (int, error) {
	sc, ok := c.(syscall.Conn)
	if !ok {
		return -1, fmt.Errorf("%T has no descriptor", c)
	}
	raw, err := sc.SyscallConn()
	if err != nil {
		return -1, err
	}
	fd := -1
	cerr := raw.Control(func(s uintptr) { fd, err = unix.FcntlInt(s, unix.F_DUPFD_CLOEXEC, 0) })
	return fd, errors.Join(cerr, err)
}
