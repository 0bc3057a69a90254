package worker

import (
	"log/slog"

	"guestwire/cmd/config"
	"guestwire/translate/hostsock"
	"guestwire/vring/eventloop"
)

// Seams are where a test puts its own world below a whole Worker: a clock that
// it moves, sockets that fail when it says so. What is nil is the real thing.
type Seams struct {
	Clock eventloop.Clock                   // read on the loop
	Host  func(hostsock.Host) hostsock.Host // wraps the sockets that are made for the guest
}

// NewOn is New on seams.
func NewOn(cfg *config.Net, log *slog.Logger, s Seams) (*Worker, error) {
	if s.Clock == nil {
		s.Clock = eventloop.NewClock()
	}
	if s.Host == nil {
		s.Host = func(h hostsock.Host) hostsock.Host { return h }
	}
	raiseDescriptorLimit()
	w := &Worker{cfg: cfg, log: log, seams: s}
	steps := []func() error{w.openLoop, w.openHost, w.openTranslator, w.attach, w.watch}
	for _, step := range steps {
		if err := step(); err != nil {
			w.Close()
			return nil, err
		}
	}
	return w, nil
}
