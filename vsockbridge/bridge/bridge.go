package bridge

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// Config is a bridge. From and To are required.
type Config struct {
	From, To       Address
	MaxConnections int                          // clients at a time; 0: 1024
	MaxMessage     int                          // longest message in bytes; 0: 1 MiB
	Copy           bool                         // never splice
	Joiner         func(*eventloop.Loop) Joiner // what may join ends in the relay's place; nil: nothing
	Log            func(string, ...any)         // one line per client that could not be served; nil: no log
}

// Joiner is a better way to join some ends than the relay's. It is used on the
// bridge's loop alone.
type Joiner interface {
	// Join joins two ends as relay.Start does, or changes nothing and reports false:
	// then the relay does it.
	Join(a, b relay.End, ended func(relay.Result)) bool
	// Close ends all at once, without telling.
	Close()
	// Each calls f with the name and value of every counter.
	Each(f func(name string, value uint64))
}

const (
	defaultConnections = 1024
	// rest is the pause after a failure of which the next would follow at once.
	rest = 200 * time.Millisecond
)

// Bridge serves clients of From by To.
type Bridge struct {
	c        Config
	from, to side
	loop     *eventloop.Loop
	relay    *relay.Relay
	joiner   Joiner        // nil: the relay joins all
	places   chan struct{} // a place for every client

	mu      sync.Mutex
	handed  []pairing // on their way to the loop
	clients sync.WaitGroup
}

// pairing asks the loop to join two ends.
type pairing struct {
	a, b  relay.End
	ended chan relay.Result // room for one
}

// New opens what listens, so that clients may come from then on.
func New(c Config) (*Bridge, error) {
	if err := c.check(); err != nil {
		return nil, err
	}
	if c.MaxConnections <= 0 {
		c.MaxConnections = defaultConnections
	}
	if c.From.kind.name == "unix-recv" {
		c.MaxConnections = 1 // all datagrams come by the one socket
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	b := &Bridge{c: c, places: make(chan struct{}, c.MaxConnections)}
	if err := b.open(); err != nil {
		b.Close()
		return nil, err
	}
	return b, nil
}

func (c *Config) check() error {
	switch from, to := c.From.kind, c.To.kind; {
	case from == nil || to == nil:
		return errors.New("a bridge needs two addresses")
	case to.name == "unix-recv":
		return fmt.Errorf("%s only receives: make it the first address", &c.To)
	case from.name == "stdio" && to.name == "stdio":
		return errors.New("both addresses are stdio: there is only one")
	}
	return nil
}

func (b *Bridge) open() (err error) {
	if b.loop, err = eventloop.New(eventloop.NewClock()); err != nil {
		return err
	}
	b.relay = relay.New(relay.Config{MaxPairs: b.c.MaxConnections, MaxMessage: b.c.MaxMessage, Copy: b.c.Copy}, b.loop)
	if b.c.Joiner != nil {
		b.joiner = b.c.Joiner(b.loop)
	}
	if b.from, err = newSide(b.c.From); err != nil {
		return fmt.Errorf("%s: %w", &b.c.From, err)
	}
	if b.to, err = newSide(b.c.To); err != nil {
		return fmt.Errorf("%s: %w", &b.c.To, err)
	}
	return nil
}

// Where says where From is, with the port that the kernel has chosen.
func (b *Bridge) Where() string { return b.from.where() }

// BoundariesLost tells whether messages become a stream of bytes, or the other
// way round, with nothing to tell them apart.
func (b *Bridge) BoundariesLost() bool {
	plain := func(k relay.Kind) bool { return k == relay.Stream }
	return plain(b.c.From.carries()) != plain(b.c.To.carries())
}

// Each calls f with the name and value of every counter. Run must be running.
func (b *Bridge) Each(f func(name string, value uint64)) {
	type counter struct {
		name  string
		value uint64
	}
	got := make(chan []counter, 1)
	read := func() {
		var list []counter
		add := func(name string, v uint64) { list = append(list, counter{name, v}) }
		s := b.relay.Stats()
		s.Each(add)
		if b.joiner != nil {
			b.joiner.Each(add)
		}
		got <- list
	}
	if b.loop.Do(read) != nil {
		return
	}
	select {
	case list := <-got:
		for _, c := range list {
			f(c.name, c.value)
		}
	case <-time.After(time.Second): // the loop has ended meanwhile
	}
}

// Run serves until ctx ends, or, when there is but one client, until that has
// been served; its failure is then Run's.
func (b *Bridge) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	ran := make(chan error, 1)
	go func() { ran <- b.loop.Run(); cancel() }()
	context.AfterFunc(ctx, func() { _ = b.loop.Do(b.endAll) })
	err := b.serve(ctx)
	cancel()
	b.clients.Wait()
	b.loop.Stop()
	return errors.Join(err, <-ran)
}

// Close gives everything back. Run has ended by then, or was never called.
func (b *Bridge) Close() {
	for _, s := range []side{b.from, b.to} {
		if s != nil {
			s.close()
		}
	}
	for _, p := range b.handed {
		p.close()
	}
	b.endAll()
	if b.loop != nil {
		b.loop.Close()
	}
}

// endAll ends all that is joined, on the loop or once that has ended.
func (b *Bridge) endAll() {
	if b.joiner != nil {
		b.joiner.Close()
	}
	if b.relay != nil {
		b.relay.Close()
	}
}

func (b *Bridge) serve(ctx context.Context) error {
	if !b.c.From.Listens() {
		return quiet(ctx, b.only(ctx))
	}
	for {
		select {
		case b.places <- struct{}{}:
		case <-ctx.Done():
			return nil
		}
		a, err := b.from.open(ctx)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil && b.c.From.Once:
			return fmt.Errorf("%s: %w", &b.c.From, err)
		case err != nil: // mostly descriptors that have run out
			b.c.Log("%s: %v", &b.c.From, err)
			<-b.places
			pause(ctx)
			continue
		case b.c.From.Once:
			b.from.close()
			return quiet(ctx, b.client(ctx, a))
		}
		b.clients.Go(func() {
			if err := quiet(ctx, b.client(ctx, a)); err != nil {
				b.c.Log("%v", err)
				if b.c.From.Type == unix.SOCK_DGRAM {
					pause(ctx) // the datagram is still there
				}
			}
			<-b.places
		})
	}
}

// quiet is err, unless that is because we were told to stop.
func quiet(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return nil
	}
	return err
}

func pause(ctx context.Context) {
	select {
	case <-ctx.Done():
	case <-time.After(rest):
	}
}

// only serves a From that does not listen. To comes first: who started us may end
// us as soon as our standard output is closed, and would not see why To failed.
func (b *Bridge) only(ctx context.Context) error {
	z, err := b.to.open(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", &b.c.To, err)
	}
	a, err := b.from.open(ctx)
	if err != nil {
		z.close()
		return fmt.Errorf("%s: %w", &b.c.From, err)
	}
	return b.joined(ctx, a, z)
}

// client serves one client of a From that listens.
func (b *Bridge) client(ctx context.Context, a opened) error {
	z, err := b.to.open(ctx)
	if err != nil {
		a.close()
		return fmt.Errorf("%s: %w", &b.c.To, err)
	}
	return b.joined(ctx, a, z)
}

// joined has the loop join two ends, and waits for their end.
func (b *Bridge) joined(ctx context.Context, a, z opened) error {
	p := pairing{a.End, z.End, make(chan relay.Result, 1)}
	b.hand(p)
	var res relay.Result
	select {
	case res = <-p.ended:
	case <-ctx.Done(): // the pair ends without a word
	}
	for _, o := range []opened{a, z} {
		if o.done != nil {
			o.done()
		}
	}
	if res.Err != 0 {
		return fmt.Errorf("%s - %s: %w", &b.c.From, &b.c.To, res.Err)
	}
	return nil
}

// hand passes two ends on to the loop. However many come at once, they take one
// letter in its mailbox.
func (b *Bridge) hand(p pairing) {
	b.mu.Lock()
	b.handed = append(b.handed, p)
	first := len(b.handed) == 1
	b.mu.Unlock()
	if first {
		_ = b.loop.Do(b.join) // fails when the loop has stopped: Close tidies up
	}
}

// join runs on the loop.
func (b *Bridge) join() {
	b.mu.Lock()
	list := b.handed
	b.handed = nil
	b.mu.Unlock()
	for _, p := range list {
		ended := func(r relay.Result) { p.ended <- r }
		if b.joiner != nil && b.joiner.Join(p.a, p.b, ended) {
			continue
		}
		if _, err := b.relay.Start(p.a, p.b, ended); err != nil {
			p.close()
			b.c.Log("%v", err)
			p.ended <- relay.Result{Err: unix.EIO}
		}
	}
}

// close gives back what the relay did not get.
func (p *pairing) close() {
	closeEnd(p.a)
	closeEnd(p.b)
}

func (o *opened) close() {
	closeEnd(o.End)
	if o.done != nil {
		o.done()
	}
}

func closeEnd(e relay.End) {
	unix.Close(e.In)
	if e.Out != e.In && e.Out >= 0 {
		unix.Close(e.Out)
	}
}
