// Package vsock is the two ends of a guest's vsock as plain Go connections: AF_VSOCK sockets for the guest program, and on the host a client of the hybrid
// protocol (CONNECT PORT, OK PORT) over a UNIX socket. It shares no code with guestwire, so that what it finds out is about guestwire.
//
// Dial and Listen open AF_VSOCK: call them inside a guest that a test has started, never on the machine itself, whose /dev/vsock may belong to the
// hypervisor that runs it.
package vsock
