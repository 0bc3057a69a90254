package vhostuser

import "errors"

// Frontend is the VMM's end of the protocol: a blocking client for tests and
// load generators.
type Frontend struct{ fd int }

// DialFrontend connects to a listening backend.
func DialFrontend(path string) (*Frontend, error) {
	return nil, errors.New("vhostuser: not implemented")
}

// NewFrontendFD uses a connected socket, which it then owns.
func NewFrontendFD(fd int) *Frontend { return &Frontend{fd: fd} }
