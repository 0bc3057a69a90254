package serve

import (
	"context"
	"errors"
	"net"
	"sync"
	"time"

	"github.com/mdlayher/vsock"

	"guestwire/guestagent/proto"
	"guestwire/guestagent/setup"
)

const (
	maxClients = 8
	rest       = 200 * time.Millisecond
	setupTime  = 5 * time.Second
)

// Config is a Server. Listener and Setup are required.
type Config struct {
	Listener net.Listener
	Setup    *setup.Setup
	Listen   func(port uint32, buffer int) (net.Listener, error) // where services are exposed; nil: Listen
	Version  string                                              // of the agent
	Log      func(format string, a ...any)                       // what goes wrong; nil: no log
	Told     func(format string, a ...any)                       // what the host has changed; nil: no log
}

// Server answers the host.
type Server struct {
	c       Config
	clock   clock
	exposed *services
	places  chan struct{} // one for every client
	clients sync.WaitGroup
}

// New makes a Server, which owns the listener from then on.
func New(c Config) (*Server, error) {
	if c.Listen == nil {
		c.Listen = Listen
	}
	for _, log := range []*func(string, ...any){&c.Log, &c.Told} {
		if *log == nil {
			*log = func(string, ...any) {}
		}
	}
	exposed, err := newServices(&c)
	if err != nil {
		return nil, err
	}
	return &Server{c: c, clock: systemClock{}, exposed: exposed, places: make(chan struct{}, maxClients)}, nil
}

// fromHost tells whether a peer is the host itself.
func fromHost(a net.Addr) bool {
	v, ok := a.(*vsock.Addr)
	return ok && v.ContextID == vsock.Host
}

// Run answers until ctx ends.
func (s *Server) Run(ctx context.Context) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	context.AfterFunc(ctx, func() { s.c.Listener.Close() })
	accept(ctx, s.c.Listener, s.c.Log, func(c net.Conn) { s.client(ctx, c) })
	s.clients.Wait()
	return s.exposed.close()
}

// accept hands the host's connections to take, which must not wait, until the
// listener is closed. Those of anybody else it closes unread.
func accept(ctx context.Context, l net.Listener, log func(string, ...any), take func(net.Conn)) {
	for {
		c, err := l.Accept()
		switch {
		case errors.Is(err, net.ErrClosed) || ctx.Err() != nil:
			if err == nil {
				c.Close()
			}
			return
		case err != nil:
			log("%v: %v", l.Addr(), err)
			select {
			case <-ctx.Done():
			case <-time.After(rest):
			}
		case !fromHost(c.RemoteAddr()):
			log("%v: refused %v, which is not the host", l.Addr(), c.RemoteAddr())
			c.Close()
		default:
			take(c)
		}
	}
}

// client answers one client, if there is a place for it.
func (s *Server) client(ctx context.Context, c net.Conn) {
	select {
	case s.places <- struct{}{}:
	default:
		s.c.Log("%d clients are being answered: another is refused", maxClients)
		c.Close()
		return
	}
	s.clients.Go(func() {
		conn := proto.NewConn(c)
		defer func() { conn.Close(); <-s.places }()
		defer context.AfterFunc(ctx, func() { conn.Close() })()
		for {
			if err := s.exchange(ctx, conn); err != nil {
				if errors.Is(err, proto.ErrFrame) {
					s.c.Log("a client is left: %v", err)
				}
				return
			}
		}
	})
}

// exchange is one request and its answer. An error ends the connection.
func (s *Server) exchange(ctx context.Context, c *proto.Conn) error {
	f, err := c.Receive(proto.IdleTime)
	if err != nil {
		return err
	}
	answer, err := s.answer(ctx, &f)
	if err != nil {
		return c.Send(proto.No, f.ID, proto.Failure{Error: proto.Text(err.Error())})
	}
	return c.Send(f.Kind|proto.Answer, f.ID, answer)
}
