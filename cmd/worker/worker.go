package worker

import (
	"fmt"
	"io"
	"log/slog"
	"strings"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/translate/dns"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge"
)

// Worker serves one guest, or the guests of one sibling group, on one loop.
type Worker struct {
	log     *slog.Logger
	seams   Seams
	loop    *eventloop.Loop
	guests  []*guest
	groups  map[string]*vsockbridge.Group // by name
	watcher *watcher
	inside  *inside // nil: the guest is no namespace

	ended chan struct{} // closed when Run has ended
}

// guest is one guest's devices: nil what it does not have.
type guest struct {
	name  string
	log   *slog.Logger
	nic   *nic
	vsock *vsock
}

// New opens everything that the guests' configurations ask for: a Worker that
// exists will serve.
func New(guests []config.Guest, log *slog.Logger) (*Worker, error) {
	return NewOn(guests, log, Seams{})
}

// open makes the loop, and on it every guest in turn.
func (w *Worker) open(guests []config.Guest) (err error) {
	if w.loop, err = eventloop.New(w.seams.Clock); err != nil {
		return err
	}
	if err := w.inside.open(w); err != nil {
		return err
	}
	for i := range guests {
		if err := w.openGuest(&guests[i]); err != nil {
			if name := guests[i].Name; name != "" {
				return fmt.Errorf("guest %s: %w", name, err)
			}
			return err
		}
	}
	w.loop.SetPoll(polling(guests))
	w.watch()
	return nil
}

// polling is how the loop waits: as the most impatient of its guests asks for.
func polling(guests []config.Guest) (p eventloop.Poll) {
	for i := range guests {
		if n := guests[i].Net; n != nil {
			p = p.More(n.Poll)
		}
		if v := guests[i].Vsock; v != nil {
			p = p.More(v.Poll)
		}
	}
	return p
}

func (w *Worker) openGuest(c *config.Guest) (err error) {
	g := &guest{name: c.Name, log: w.log}
	if c.Name != "" {
		g.log = w.log.With("guest", c.Name)
	}
	w.guests = append(w.guests, g)
	if c.Net != nil {
		if g.nic, err = w.openNIC(c.Net, g.log); err != nil {
			return err
		}
	}
	if c.Vsock != nil {
		g.vsock, err = w.openVsock(c.Vsock, g.nic, g.log)
	}
	return err
}

// watch follows resolv.conf, unless everything that it says was given by option.
func (w *Worker) watch() {
	var nics []*nic
	for _, g := range w.guests {
		if g.nic != nil && !g.nic.resolver.fixed() {
			nics = append(nics, g.nic)
		}
	}
	if len(nics) == 0 {
		return
	}
	w.watcher = watchResolvConf(w.seams.ResolvConf, func(c dns.ResolvConf) {
		_ = w.loop.Do(func() {
			for _, n := range nics {
				n.resolversChanged(c)
			}
		})
	})
}

// Run serves the guests until Stop, once. It takes over the calling goroutine's
// thread.
func (w *Worker) Run() error {
	defer close(w.ended)
	if err := w.loop.Run(); err != nil {
		return fmt.Errorf("the event loop ended: %w", err)
	}
	return nil
}

// Stop ends Run. It may be called from any goroutine.
func (w *Worker) Stop() { w.loop.Stop() }

// Close releases everything; Run has ended by then, or was never called.
func (w *Worker) Close() {
	w.watcher.close()
	for _, g := range w.guests {
		g.nic.close()
		g.vsock.close()
	}
	w.inside.close()
	if w.loop != nil {
		w.loop.Close()
	}
}

// Forwards lists the inbound forwards of all guests, as they stand in the ready
// line; empty without any.
func (w *Worker) Forwards() string {
	var s string
	for _, g := range w.guests {
		if g.nic != nil {
			s += g.nic.forwards()
		}
	}
	return s
}

// Ready describes for the ready line where each device of each guest is reached,
// with the ports that its forwards really have.
func (w *Worker) Ready() string {
	var list []string
	for _, g := range w.guests {
		if g.nic != nil {
			list = append(list, g.nic.ready())
		}
		if g.vsock != nil {
			list = append(list, g.vsock.ready())
		}
	}
	return strings.Join(list, "; ")
}

// PrintStats writes every counter as a line `name value`; names begin with the
// guest's, where it has one, and a dot.
func (w *Worker) PrintStats(out io.Writer) {
	done := make(chan string, 1)
	err := w.loop.Do(func() {
		var b strings.Builder
		w.each(func(name string, value uint64) { fmt.Fprintf(&b, "%s %d\n", name, value) })
		done <- b.String()
	})
	if err != nil {
		fmt.Fprintln(out, "statistics are not to be had now:", err)
		return
	}
	select {
	case s := <-done:
		_, _ = io.WriteString(out, s)
	case <-w.ended: // it did not get to the question
		fmt.Fprintln(out, "statistics are not to be had any more: the event loop has ended")
	}
}

// raiseDescriptorLimit takes all that is allowed: a flow costs a descriptor.
func raiseDescriptorLimit() {
	var r unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_NOFILE, &r) == nil && r.Cur < r.Max {
		r.Cur = r.Max
		_ = unix.Setrlimit(unix.RLIMIT_NOFILE, &r)
	}
}

// where says how a device's frontend reaches it.
func where(path string, fd int) string {
	if path != "" {
		return path
	}
	return fmt.Sprintf("file descriptor %d", fd)
}
