package worker

import (
	"log/slog"

	"guestwire/cmd/config"
	"guestwire/vnet/netns"
)

// inside is what a Worker has beside a network card when its guest is a namespace.
type inside struct {
	cfg  *config.Netns
	ns   *netns.Namespace
	life *netns.Life
}

// NewNetns makes the Worker of a namespace. It takes the tap over. When a namespace
// that was not made by us goes, the Worker stops.
func NewNetns(cfg *config.Netns, ns *netns.Namespace, log *slog.Logger) (*Worker, error) {
	net := *cfg.Net
	net.FD, ns.TapFD = ns.TapFD, -1
	return newOn([]config.Guest{{Net: &net}}, log, Seams{}, &inside{cfg: cfg, ns: ns})
}

func (in *inside) open(w *Worker) (err error) {
	if in == nil {
		return nil
	}
	in.life, err = in.ns.Follow(w.loop, w.Stop)
	return err
}

func (in *inside) close() {
	if in != nil {
		in.life.Close()
	}
}
