package netns

import (
	"encoding/json"
	"fmt"
	"net/netip"

	"golang.org/x/sys/unix"
)

// Interface is what the namespace's interface shall be.
type Interface struct {
	Name   string // may have a %d for a number
	MTU    int    // bytes
	Config bool   // give it what follows, and bring it up

	Addresses []netip.Prefix
	Gateways  []netip.Addr // default routes
	DNS       []netip.Addr // for the resolv.conf of a command in a new namespace
	Search    []string
}

// request is what the keeper is asked; one message of the control socket.
type request struct {
	Op     op
	If     *Interface     `json:",omitempty"` // opSetup
	Domain int            `json:",omitempty"` // opSockets, opListen
	Type   int            `json:",omitempty"`
	N      int            `json:",omitempty"` // opSockets
	Addr   netip.AddrPort `json:",omitzero"`  // opListen
	Signal int            `json:",omitempty"` // opSignal
}

type op uint8

const (
	opSetup   op = iota + 1 // -> name, tap
	opRun                   // the command; no answer
	opSignal                // to the command; no answer
	opSockets               // -> n sockets
	opListen                // -> one socket
)

// answer comes back, with descriptors beside it.
type answer struct {
	Err   string     `json:",omitempty"`
	Errno unix.Errno `json:",omitempty"` // of opListen
	Name  string     `json:",omitempty"` // of the interface
	Warn  []string   `json:",omitempty"`
}

const (
	maxMessage = 16 << 10
	maxFDs     = 64
)

func send(fd int, v any, fds ...int) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	var oob []byte
	if len(fds) > 0 {
		oob = unix.UnixRights(fds...)
	}
	return unix.Sendmsg(fd, b, oob, nil, unix.MSG_NOSIGNAL)
}

// receive reads one message. Descriptors that come with it belong to the caller.
func receive(fd int, v any) (fds []int, err error) {
	b, oob := make([]byte, maxMessage), make([]byte, unix.CmsgSpace(4*maxFDs))
	var n, oobn, flags int
	for {
		n, oobn, flags, _, err = unix.Recvmsg(fd, b, oob, unix.MSG_CMSG_CLOEXEC)
		if err != unix.EINTR {
			break
		}
	}
	if err != nil {
		return nil, err
	}
	if msgs, err := unix.ParseSocketControlMessage(oob[:oobn]); err == nil {
		for i := range msgs {
			got, _ := unix.ParseUnixRights(&msgs[i])
			fds = append(fds, got...)
		}
	}
	switch {
	case n == 0:
		err = errClosed
	case flags&(unix.MSG_TRUNC|unix.MSG_CTRUNC) != 0:
		err = fmt.Errorf("a message of the control socket does not fit")
	default:
		err = json.Unmarshal(b[:n], v)
	}
	if err != nil {
		closeAll(fds)
		return nil, err
	}
	return fds, nil
}

func closeAll(fds []int) {
	for _, fd := range fds {
		unix.Close(fd)
	}
}
