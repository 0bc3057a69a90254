package worker

import (
	"log/slog"

	"guestwire/cmd/config"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge"
)

// Seams are where a test puts its own world below a whole Worker: a clock that
// it moves, sockets that fail when it says so, a file of its own. What is zero is the real thing.
type Seams struct {
	Clock eventloop.Clock                   // read on the loop
	Host  func(hostsock.Host) hostsock.Host // wraps the sockets that are made for a guest's network card

	ResolvConf string // in the place of /etc/resolv.conf
}

// NewOn is New on seams.
func NewOn(guests []config.Guest, log *slog.Logger, s Seams) (*Worker, error) {
	return newOn(guests, log, s, nil)
}

func newOn(guests []config.Guest, log *slog.Logger, s Seams, in *inside) (*Worker, error) {
	if s.Clock == nil {
		s.Clock = eventloop.NewClock()
	}
	if s.Host == nil {
		s.Host = func(h hostsock.Host) hostsock.Host { return h }
	}
	if s.ResolvConf == "" {
		s.ResolvConf = resolvConf
	}
	raiseDescriptorLimit()
	w := &Worker{log: log, seams: s, groups: map[string]*vsockbridge.Group{}, inside: in,
		ended: make(chan struct{})}
	if err := w.open(guests); err != nil {
		w.Close()
		return nil, err
	}
	return w, nil
}
