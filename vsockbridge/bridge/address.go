package bridge

import (
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/unixsock"
	"guestwire/vsockbridge/relay"
)

// Address says where one side of a bridge is.
type Address struct {
	kind     *kind
	Path     string        // unix-*, uds
	HostPort string        // tcp-*
	CID      uint32        // vsock-*
	Port     uint32        // vsock-*, uds
	Command  string        // exec
	Type     int           // unix.SOCK_STREAM, SOCK_SEQPACKET or SOCK_DGRAM
	Frame    bool          // every message is behind its length
	Once     bool          // one client, then no more
	Eager    bool          // unix-recv: the other side is opened before a datagram comes
	Wait     time.Duration // how long to go on trying to connect
	Buffer   uint64        // bytes of a vsock connection's receive buffer; 0: the kernel's default
	Mode     os.FileMode   // of a listening socket's file
	UID, GID int           // of it; -1: as created
}

// kind is a kind of address: its name, its form, and the options that it has.
type kind struct {
	name    string
	form    string // what follows the name, for messages
	listens bool
	options string // names, with a blank behind each
	parse   func(a *Address, rest string) error
}

var kinds = []kind{
	{"unix-listen", ":PATH", true, "type frame once mode owner ", (*Address).parsePath},
	{"unix-connect", ":PATH", false, "type frame wait ", (*Address).parsePath},
	{"unix-recv", ":PATH", true, "eager mode owner ", (*Address).parseRecv},
	{"uds", ":PATH:PORT", false, "frame wait ", (*Address).parseUDS},
	{"vsock-listen", ":PORT or :CID:PORT", true, "type frame once buffer ", (*Address).parseVsockListen},
	{"vsock-connect", ":CID:PORT", false, "type frame wait buffer ", (*Address).parseVsockConnect},
	{"tcp-listen", ":ADDRESS:PORT", true, "frame once ", (*Address).parseTCP},
	{"tcp-connect", ":HOST:PORT", false, "frame wait ", (*Address).parseTCP},
	{"stdio", "", false, "frame ", (*Address).parseNothing},
	{"exec", ":COMMAND", false, "", (*Address).parseCommand},
}

// Parse reads an address: KIND:WHERE[,OPTION...]. What follows exec: is the
// command as it is, commas and all.
func Parse(s string) (Address, error) {
	a := Address{Type: unix.SOCK_STREAM, UID: -1, GID: -1}
	name, rest, _ := strings.Cut(s, ":")
	var options []string
	if name != "exec" {
		parts := strings.Split(s, ",")
		name, rest, _ = strings.Cut(parts[0], ":")
		options = parts[1:]
	}
	for i := range kinds {
		if kinds[i].name == name {
			a.kind = &kinds[i]
		}
	}
	if a.kind == nil {
		return a, fmt.Errorf("%q: no such kind of address: use %s", s, forms())
	}
	if err := a.kind.parse(&a, rest); err != nil {
		return a, fmt.Errorf("%q: %w (the form is %s%s)", s, err, a.kind.name, a.kind.form)
	}
	for _, o := range options {
		if err := a.option(o); err != nil {
			return a, fmt.Errorf("%q: %w", s, err)
		}
	}
	return a, nil
}

func forms() string {
	var fs []string
	for i := range kinds {
		fs = append(fs, kinds[i].name+kinds[i].form)
	}
	return strings.Join(fs[:len(fs)-1], ", ") + " or " + fs[len(fs)-1]
}

// Listens tells whether clients come to this address.
func (a *Address) Listens() bool { return a.kind.listens }

// String is the address without its options.
func (a *Address) String() string {
	switch a.kind.name {
	case "unix-listen", "unix-connect", "unix-recv":
		return a.kind.name + ":" + a.Path
	case "uds":
		return fmt.Sprintf("uds:%s:%d", a.Path, a.Port)
	case "tcp-listen", "tcp-connect":
		return a.kind.name + ":" + a.HostPort
	case "exec":
		return "exec:" + a.Command
	case "vsock-listen":
		if a.CID == unix.VMADDR_CID_ANY {
			return fmt.Sprintf("vsock-listen:%d", a.Port)
		}
		fallthrough
	case "vsock-connect":
		return fmt.Sprintf("%s:%d:%d", a.kind.name, a.CID, a.Port)
	}
	return a.kind.name
}

// carries says how the relay is to treat it.
func (a *Address) carries() relay.Kind {
	switch {
	case a.Type == unix.SOCK_SEQPACKET:
		return relay.Seqpacket
	case a.Type == unix.SOCK_DGRAM:
		return relay.Datagram
	case a.Frame:
		return relay.Framed
	}
	return relay.Stream
}

func (a *Address) parsePath(rest string) error {
	a.Path = rest
	return unixsock.CheckPath(rest)
}

func (a *Address) parseRecv(rest string) error {
	a.Type = unix.SOCK_DGRAM
	return a.parsePath(rest)
}

func (a *Address) parseUDS(rest string) error {
	i := strings.LastIndexByte(rest, ':')
	if i < 0 {
		return fmt.Errorf("the guest's port is missing")
	}
	if err := a.parsePath(rest[:i]); err != nil {
		return err
	}
	return a.parsePort(rest[i+1:])
}

func (a *Address) parseVsockListen(rest string) error {
	a.CID = unix.VMADDR_CID_ANY
	if !strings.Contains(rest, ":") {
		return a.parsePort(rest)
	}
	return a.parseVsockConnect(rest)
}

func (a *Address) parseVsockConnect(rest string) error {
	cid, port, ok := strings.Cut(rest, ":")
	if !ok {
		return fmt.Errorf("it needs a CID and a port")
	}
	switch cid {
	case "any":
		a.CID = unix.VMADDR_CID_ANY
	case "local":
		a.CID = unix.VMADDR_CID_LOCAL
	case "host":
		a.CID = unix.VMADDR_CID_HOST
	default:
		n, err := strconv.ParseUint(cid, 10, 32)
		if err != nil {
			return fmt.Errorf("%q is no CID: use a number, 2 or host from within a guest, 1 or local for this machine itself", cid)
		}
		a.CID = uint32(n)
	}
	if a.CID == unix.VMADDR_CID_ANY && !a.Listens() {
		return fmt.Errorf("there is no connecting to any CID")
	}
	return a.parsePort(port)
}

func (a *Address) parsePort(s string) error {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == unix.VMADDR_PORT_ANY {
		return fmt.Errorf("%q is no vsock port: use 0 to 4294967294", s)
	}
	a.Port = uint32(n)
	return nil
}

func (a *Address) parseTCP(rest string) error {
	host, port, err := net.SplitHostPort(rest)
	if err != nil {
		return fmt.Errorf("%q is not HOST:PORT: write 127.0.0.1:80 or [::1]:80", rest)
	}
	if n, err := strconv.ParseUint(port, 10, 16); err != nil || n == 0 && !a.Listens() {
		return fmt.Errorf("%q is no TCP port: use 1 to 65535", port)
	}
	if host == "" && !a.Listens() {
		return fmt.Errorf("the host is missing")
	}
	a.HostPort = rest
	return nil
}

func (a *Address) parseCommand(rest string) error {
	if a.Command = rest; strings.TrimSpace(rest) == "" {
		return fmt.Errorf("the command is missing")
	}
	return nil
}

func (a *Address) parseNothing(rest string) error {
	if rest != "" {
		return fmt.Errorf("nothing may follow but options")
	}
	return nil
}
