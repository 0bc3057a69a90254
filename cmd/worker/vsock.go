package worker

import (
	"fmt"
	"log/slog"

	"guestwire/cmd/config"

	"guestwire/vring/vhostuser"
	"guestwire/vsockbridge"
)

// vsock is one guest's vsock device with its frontend.
type vsock struct {
	cfg    *config.Vsock
	device *vsockbridge.Device
	server *vhostuser.Server
}

func (w *Worker) openVsock(cfg *config.Vsock, log *slog.Logger) (v *vsock, err error) {
	v = &vsock{cfg: cfg}
	v.device, err = vsockbridge.New(vsockbridge.Config{
		CID: cfg.CID, BufAlloc: cfg.TxBuffer, MaxConns: cfg.MaxConns, Log: limited(log),
	}, w.loop)
	if err != nil {
		return v, err
	}
	v.server, err = vhostuser.NewServer(w.loop, v.device, vhostuser.ServerConfig{
		Path: cfg.SocketPath, FD: cfg.FD, Client: cfg.Client, Log: unlimited(log), Gone: w.Stop,
	})
	return v, err
}

// close releases what is open; the device may be half made.
func (v *vsock) close() {
	if v == nil {
		return
	}
	if v.server != nil {
		v.server.Close()
	}
	if v.device != nil {
		v.device.Close()
	}
}

func (v *vsock) ready() string {
	return fmt.Sprintf("%s (vhost-user vsock, CID %d)", where(v.cfg.SocketPath, v.cfg.FD), v.cfg.CID)
}

func (v *vsock) each(f func(name string, value uint64)) {
	s := v.device.Stats()
	s.Each(func(name string, n uint64) { f("vsock_"+name, n) })
}
