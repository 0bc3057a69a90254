package redirect

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"guestwire/guestagent/redirect/sockmap"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/bridge"
)

// Config is what to redirect.
type Config struct {
	Rules      []Rule
	MaxFlows   int                  // of each rule at a time; 0: package bridge's default
	MaxMessage int                  // longest message in bytes; 0: 1 MiB
	MaxSlots   int                  // flows that the kernel moves at a time; 0: sockmap.DefaultSlots
	Log        func(string, ...any) // one line per flow that could not be served, and per reason for a slower path; nil: no log
}

// Redirect serves all rules.
type Redirect struct {
	c       Config
	kernel  *sockmap.Kernel // nil: it cannot
	why     error           // why not
	bridges []*bridge.Bridge

	mu   sync.Mutex
	told map[string]bool // reasons that the log has
}

// New opens what listens, so that clients may come from then on.
func New(c Config) (*Redirect, error) {
	if len(c.Rules) == 0 {
		return nil, errors.New("nothing to redirect: give rules, such as unix:/run/a.sock=vsock:2:1024")
	}
	if c.Log == nil {
		c.Log = func(string, ...any) {}
	}
	r := &Redirect{c: c, told: map[string]bool{}}
	if err := r.open(); err != nil {
		r.Close()
		return nil, err
	}
	return r, nil
}

// open finds out what the kernel can do, if any rule wants to know, since reading
// its types takes a tenth of a second; and opens the rules' sockets.
func (r *Redirect) open() error {
	c := &r.c
	if slices.ContainsFunc(c.Rules, func(r Rule) bool { return r.mayRedirect() }) {
		if r.kernel, r.why = sockmap.Open(c.MaxSlots); r.why != nil {
			r.kernel = nil
		}
	}
	for i := range c.Rules {
		rule := &c.Rules[i]
		b, err := bridge.New(bridge.Config{
			From: rule.From, To: rule.To, MaxConnections: c.MaxFlows, MaxMessage: c.MaxMessage, Copy: rule.Path == Copy, Log: c.Log,
			Joiner: func(l *eventloop.Loop) bridge.Joiner { return r.newJoiner(rule, l) },
		})
		if err != nil {
			return fmt.Errorf("%s: %w", rule.Text, err)
		}
		r.bridges = append(r.bridges, b)
	}
	return nil
}

// once logs a reason the first time that it is met.
func (r *Redirect) once(why string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.told[why] {
		r.told[why] = true
		r.c.Log("a slower path is taken: %s", why)
	}
}

// Run serves until ctx ends, or a rule fails for good, which ends all.
func (r *Redirect) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	failed := make([]error, len(r.bridges))
	var all sync.WaitGroup
	for i, b := range r.bridges {
		all.Go(func() {
			if failed[i] = b.Run(ctx); failed[i] != nil {
				failed[i] = fmt.Errorf("%s: %w", r.c.Rules[i].Text, failed[i])
			}
			cancel()
		})
	}
	all.Wait()
	return errors.Join(failed...)
}

// Each calls f with the name and value of every counter of every rule. Run must
// be running.
func (r *Redirect) Each(f func(rule, name string, value uint64)) {
	for i, b := range r.bridges {
		b.Each(func(name string, v uint64) { f(r.c.Rules[i].Text, name, v) })
	}
}

// Close gives everything back. Run has ended by then, or was never called.
func (r *Redirect) Close() {
	for _, b := range r.bridges {
		b.Close()
	}
	if r.kernel != nil {
		r.kernel.Close()
	}
}
