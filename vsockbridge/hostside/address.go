package hostside

import (
	"errors"
	"fmt"
	"net/netip"
	"strconv"
	"strings"

	"golang.org/x/sys/unix"

	"guestwire/vring/unixsock"
)

// Network is a kind of socket on the host.
type Network uint8

const (
	Unix Network = iota + 1
	TCP
	Vsock // the host kernel's own AF_VSOCK
)

// Address is that of a socket on the host.
type Address struct {
	Network Network
	Path    string         // Unix; @name is abstract
	Name    string         // TCP: a host name, until New has resolved it into TCP
	TCP     netip.AddrPort // TCP; without its address as long as there is a Name
	CID     uint32         // Vsock; unix.VMADDR_CID_ANY to listen for everybody
	Port    uint32         // Vsock
}

// String is the address as it is written in rules.
func (a Address) String() string {
	switch {
	case a.Network == Unix:
		return "unix:" + a.Path
	case a.Network == TCP && a.Name != "":
		return fmt.Sprintf("tcp:%s:%d", a.Name, a.TCP.Port())
	case a.Network == TCP:
		return "tcp:" + a.TCP.String()
	case a.CID == unix.VMADDR_CID_ANY:
		return fmt.Sprintf("vsock:%d", a.Port)
	}
	return fmt.Sprintf("vsock:%d:%d", a.CID, a.Port)
}

// sockaddr is the address as the kernel wants it. It must have been resolved.
func (a Address) sockaddr() (domain int, sa unix.Sockaddr) {
	switch {
	case a.Network == Unix:
		return unix.AF_UNIX, &unix.SockaddrUnix{Name: a.Path}
	case a.Network == Vsock:
		return unix.AF_VSOCK, &unix.SockaddrVM{CID: a.CID, Port: a.Port}
	case a.TCP.Addr().Is4():
		return unix.AF_INET, &unix.SockaddrInet4{Addr: a.TCP.Addr().As4(), Port: int(a.TCP.Port())}
	}
	return unix.AF_INET6, &unix.SockaddrInet6{Addr: a.TCP.Addr().As16(), Port: int(a.TCP.Port())}
}

// parseAddress reads unix:PATH, tcp:ADDRESS:PORT, vsock:CID:PORT and, for who
// listens, vsock:PORT.
func parseAddress(s string, listen bool) (Address, error) {
	network, rest, ok := strings.Cut(s, ":")
	switch {
	case ok && network == "unix":
		return Address{Network: Unix, Path: rest}, unixsock.CheckPath(rest)
	case ok && network == "tcp":
		return parseTCP(rest)
	case ok && network == "vsock":
		return parseVsock(rest, listen)
	}
	return Address{}, fmt.Errorf("%q is no address on the host: write unix:PATH, tcp:ADDRESS:PORT or vsock:CID:PORT (the host kernel's)", s)
}

func parseTCP(s string) (Address, error) {
	a := Address{Network: TCP}
	if at, err := netip.ParseAddrPort(s); err == nil {
		if at.Addr().Zone() != "" {
			return a, fmt.Errorf("tcp:%s has a zone, which is not possible here", s)
		}
		a.TCP = netip.AddrPortFrom(at.Addr().Unmap(), at.Port())
		return a, nil
	}
	i := strings.LastIndexByte(s, ':')
	if i < 0 {
		return a, fmt.Errorf("tcp:%s lacks its port: write tcp:127.0.0.1:80", s)
	}
	port, err := strconv.ParseUint(s[i+1:], 10, 16)
	if err != nil {
		return a, fmt.Errorf("%q is no TCP port: use 1 to 65535", s[i+1:])
	}
	if !isName(s[:i]) {
		return a, fmt.Errorf("%q is neither an address nor a name: write tcp:127.0.0.1:80, tcp:[::1]:80, or tcp:0.0.0.0:80 for every IPv4 address", s[:i])
	}
	a.Name, a.TCP = s[:i], netip.AddrPortFrom(netip.Addr{}, uint16(port))
	return a, nil
}

// isName tells whether s can be a host name. All digits and dots is an address
// with a slip of the pen.
func isName(s string) bool {
	digits := true
	for _, c := range []byte(s) {
		switch {
		case c >= '0' && c <= '9' || c == '.':
		case c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c == '-' || c == '_':
			digits = false
		default:
			return false
		}
	}
	return s != "" && len(s) <= 253 && !digits
}

func parseVsock(s string, listen bool) (a Address, err error) {
	a = Address{Network: Vsock, CID: unix.VMADDR_CID_ANY}
	cid, port, both := strings.Cut(s, ":")
	switch {
	case both:
		n, err := strconv.ParseUint(cid, 10, 32)
		if err != nil || n == unix.VMADDR_CID_ANY {
			return a, fmt.Errorf("%q is no CID: use a number, 1 for this machine itself or that of a guest of the host's kernel", cid)
		}
		a.CID = uint32(n)
	case listen:
		port = s
	default:
		return a, fmt.Errorf("vsock:%s lacks the CID to connect to: write vsock:CID:PORT", s)
	}
	a.Port, err = parsePort(port)
	return a, err
}

// parsePort reads a vsock port. The highest number means any port to the kernel.
func parsePort(s string) (uint32, error) {
	n, err := strconv.ParseUint(s, 10, 32)
	if err != nil || n == unix.VMADDR_PORT_ANY {
		return 0, fmt.Errorf("%q is no vsock port: use 0 to 4294967294", s)
	}
	return uint32(n), nil
}

// resolve replaces a host name by its address.
func (a *Address) resolve(lookup func(name string) (netip.Addr, error)) error {
	if a.Name == "" {
		return nil
	}
	if lookup == nil {
		return errors.New("names are not resolved here: write the address")
	}
	ip, err := lookup(a.Name)
	if err != nil {
		return err
	}
	if !ip.IsValid() {
		return errors.New("the name has no address")
	}
	a.Name, a.TCP = "", netip.AddrPortFrom(ip.Unmap().WithZone(""), a.TCP.Port())
	return nil
}
