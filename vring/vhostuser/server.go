package vhostuser

import (
	"errors"
	"os"

	"guestwire/vring/eventloop"
)

// ServerConfig says where a Server meets its frontend: exactly one of Path and
// FD.
type ServerConfig struct {
	Path   string      // socket to listen on, or with Client to connect to
	FD     int         // -1, or a socket we were started with: listening or connected
	Client bool        // connect to Path, again and again, instead of listening
	Mode   os.FileMode // of the listening socket's file; 0 means 0600

	// Log takes one line per event worth an administrator's attention; nil: no log.
	Log func(format string, a ...any)
	// Gone is called when a connected FD has been used up: its frontend has
	// left and no other can come. nil: nobody cares.
	Gone func()
}

// Server serves one Device to one frontend at a time.
type Server struct{}

// NewServer binds or connects and registers on the loop.
func NewServer(l *eventloop.Loop, d Device, c ServerConfig) (*Server, error) {
	return nil, errors.New("vhostuser: not implemented")
}

// Close ends the session and removes the socket that NewServer made.
func (s *Server) Close() {}

// State describes the session, for status output.
func (s *Server) State() State { return State{} }
