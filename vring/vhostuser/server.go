package vhostuser

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/unixsock"
)

const (
	acceptsPerTurn = 16
	acceptPause    = eventloop.Time(100e6) // after running out of descriptors
	retryMin       = eventloop.Time(100e6) // between attempts to connect, doubling
	retryMax       = eventloop.Time(1e9)
	linesPerConn   = 20 // log lines about one connection's refusals
)

// ServerConfig says where a Server meets its frontend: exactly one of Path and
// FD.
type ServerConfig struct {
	Path   string      // socket to listen on, or with Client to connect to; @name is abstract
	FD     int         // without Path: a unix socket we were started with, listening or connected; owned by the Server
	Client bool        // connect to Path, again and again, instead of listening
	Mode   os.FileMode // of the listening socket's file; 0 means 0600: whoever connects speaks for the guest

	// Log takes one line per event worth an administrator's attention; nil: no log.
	Log func(format string, a ...any)
	// Gone is called when a connected FD has been used up: its frontend has
	// left and no other can come. nil: nobody cares.
	Gone func()
}

// Server serves one Device to one frontend at a time.
type Server struct {
	loop    *eventloop.Loop
	config  ServerConfig
	backend backend
	conn    conn

	listener unixsock.Listener // FD -1: none
	token    eventloop.Token
	timer    eventloop.TimerID
	retry    eventloop.Time // present pause between attempts to connect
	closed   bool

	lines    int // left for this connection's refusals
	counters Counters
}

// NewServer binds or connects and registers on the loop, on whose goroutine it
// must be called, or before that one runs.
func NewServer(l *eventloop.Loop, d Device, c ServerConfig) (*Server, error) {
	if n := d.Queues(); n < 1 || n > vringIndexMask+1 {
		return nil, fmt.Errorf("vhostuser: %d queues", n)
	}
	if c.Path != "" && c.FD > 0 {
		return nil, errors.New("vhostuser: both a path and a descriptor")
	}
	s := &Server{loop: l, config: c, listener: unixsock.Listener{FD: -1}, retry: retryMin}
	s.backend.init(l, d, s.logf)
	s.conn.init(s)
	s.timer = l.Timers().New(s, 0)
	if err := s.meet(); err != nil {
		s.Close()
		return nil, err // which names the path, and is read by who gave it
	}
	return s, nil
}

// meet makes the first step towards a frontend.
func (s *Server) meet() error {
	switch {
	case s.config.Path == "":
		listening, err := inherited(s.config.FD)
		if err != nil {
			return err
		}
		if !listening {
			s.greet()
			return s.conn.open(s.config.FD)
		}
		return s.listen(unixsock.Listener{FD: s.config.FD})
	case s.config.Client:
		if err := unixsock.CheckPath(s.config.Path); err != nil {
			return err
		}
		s.connect()
		return nil
	}
	l, err := unixsock.Listen(s.config.Path, unixsock.Options{Mode: s.config.Mode})
	if err != nil {
		return err
	}
	return s.listen(l)
}

func (s *Server) listen(l unixsock.Listener) (err error) {
	s.listener = l
	s.token, err = s.loop.Add(l.FD, eventloop.In, s, 0)
	return err
}

// Close ends the session and removes the socket that NewServer made. It must be
// called on the loop's goroutine, or when that one does not run.
func (s *Server) Close() {
	if s.closed {
		return
	}
	s.closed = true
	s.conn.close(errors.New("server closed"))
	s.loop.Remove(s.token)
	w := s.loop.Timers()
	w.Free(s.timer)
	w.Free(s.conn.stall)
	s.backend.free()
	s.listener.Close()
}

// Ready implements eventloop.Source for the listener.
func (s *Server) Ready(uint32, eventloop.Events) {
	for range acceptsPerTurn {
		fd, _, err := unix.Accept4(s.listener.FD, unix.SOCK_NONBLOCK|unix.SOCK_CLOEXEC)
		switch err {
		case nil:
			s.accept(fd)
		case unix.EINTR, unix.ECONNABORTED:
		case unix.EAGAIN:
			return
		default:
			// Out of descriptors or memory: the connection stays in the backlog
			// and would wake us for ever.
			s.logf("cannot accept: %v", err)
			s.loop.Modify(s.token, 0)
			s.loop.Timers().Set(s.timer, s.loop.Now()+acceptPause)
			return
		}
	}
}

func (s *Server) accept(fd int) {
	if s.conn.fd >= 0 {
		if !s.conn.peerGone() {
			s.counters.Refused++
			s.logf("second frontend refused")
			unix.Close(fd)
			return
		}
		// It left in the same turn, and its event is still to come.
		s.conn.close(errEOF)
	}
	s.greet()
	if err := s.conn.open(fd); err != nil {
		s.logf("cannot serve a frontend: %v", err)
	}
}

func (s *Server) greet() {
	s.counters.Connections++
	s.lines = linesPerConn
	s.logf("frontend connected")
}

// connect makes one attempt to connect, and arranges for the next if it fails.
func (s *Server) connect() {
	fd, errno := unixsock.Dial(s.config.Path, unix.SOCK_STREAM)
	err := error(errno)
	if errno == 0 {
		s.greet()
		if err = s.conn.open(fd); err == nil {
			s.retry = retryMin
			return
		}
	}
	if s.retry == retryMin {
		s.logf("waiting for a frontend on %s: %v", s.config.Path, err)
	}
	s.loop.Timers().Set(s.timer, s.loop.Now()+s.retry)
	s.retry = min(2*s.retry, retryMax)
}

// Expired implements eventloop.Expirer: try again.
func (s *Server) Expired(uint32) {
	if s.config.Client {
		s.connect()
		return
	}
	if s.loop.Modify(s.token, eventloop.In) != nil { // not even the memory to be woken
		s.loop.Timers().Set(s.timer, s.loop.Now()+acceptPause)
	}
}

// disconnected is called by conn when its session is over.
func (s *Server) disconnected(why error) {
	s.logf("frontend disconnected: %v", why)
	s.counters.LastClose = why.Error()
	switch {
	case s.closed:
	case s.config.Client:
		// Not at once: a frontend that closes at the first message would have us
		// spin.
		s.loop.Timers().Set(s.timer, s.loop.Now()+s.retry)
	case s.listener.FD < 0 && s.config.Gone != nil:
		s.config.Gone()
	}
}

// Break stops serving after something outside the loop's calls to us found guest
// memory or the device unusable: all rings are broken, the connection stays.
func (s *Server) Break(err error) { s.backend.fault(err) }

// ConfigChanged tells the frontend that the config space has changed. It reports
// whether it could: the frontend must have negotiated a channel for it.
func (s *Server) ConfigChanged() bool { return s.backend.configChanged() }

func (s *Server) logf(format string, a ...any) {
	if s.config.Log != nil {
		s.config.Log(format, a...)
	}
}

func (s *Server) count(r Request) {
	if r > maxRequest {
		r = 0
	}
	s.counters.Messages[r]++
}

// nacked notes a refusal. A frontend may cause thousands a second.
func (s *Server) nacked(r Request, err error) {
	s.counters.Nacks++
	if s.lines > 0 {
		s.lines--
		s.logf("%v refused: %v", r, err)
		if s.lines == 0 {
			s.logf("further refusals are only counted")
		}
	}
}
