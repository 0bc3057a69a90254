package hostside

import (
	"errors"
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"guestwire/vsockbridge/packet"
)

// MaxWait is the longest that a client may be made to wait for the guest.
const MaxWait = time.Hour

// File is how a listening socket's file appears.
type File struct {
	Mode     os.FileMode // 0: 0600
	UID, GID int         // 0 or less: as it is created
}

// Rule joins a socket on the host with a port of the guest.
type Rule struct {
	Host Address
	Port uint32      // the guest's
	Type packet.Type // of both sockets
	Wait time.Duration
	File File
}

// ParseListen reads a rule for connections to the guest: clients connect to the
// host's address, left, and reach the guest's port, right.
//
//	unix:/run/a.sock[,mode=0660][,owner=USER[:GROUP]][,type=stream|seqpacket][,wait=5s]=vsock:1024
//	tcp:127.0.0.1:8080[,wait=5s]=vsock:80
//	vsock:9[,...]=vsock:9        port 9 of the host kernel's own vsock
func ParseListen(s string) (Rule, error) {
	i := strings.LastIndex(s, "=vsock:")
	if i < 0 {
		return Rule{}, errors.New("the guest's port is missing: write HOST=vsock:PORT, like unix:/run/a.sock=vsock:1024")
	}
	r := Rule{Type: packet.Stream}
	if err := r.guestPort(s[i+len("=vsock:"):]); err != nil {
		return Rule{}, err
	}
	return r.read(s[:i], true)
}

// ParseConnect reads a rule for connections from the guest: those to its host's
// port, left, reach the host's address, right.
//
//	vsock:1234=unix:/run/b.sock[,type=stream|seqpacket]
//	vsock:22=tcp:127.0.0.1:22
//	vsock:9=vsock:1:9            port 9 on CID 1 of the host kernel's own vsock
func ParseConnect(s string) (Rule, error) {
	left, right, ok := strings.Cut(s, "=")
	port, isVsock := strings.CutPrefix(left, "vsock:")
	if !ok || !isVsock {
		return Rule{}, errors.New("the guest's port must come first: write vsock:PORT=HOST, like vsock:1234=unix:/run/b.sock")
	}
	r := Rule{Type: packet.Stream}
	if err := r.guestPort(port); err != nil {
		return Rule{}, err
	}
	return r.read(right, false)
}

func (r *Rule) guestPort(s string) (err error) {
	if strings.Contains(s, ":") {
		return fmt.Errorf("the guest's side is vsock:PORT, without a CID: %q", s)
	}
	r.Port, err = parsePort(s)
	return err
}

// read reads the host's side of a rule: an address and its options.
func (r Rule) read(s string, listen bool) (Rule, error) {
	address, options, _ := strings.Cut(s, ",")
	var err error
	if r.Host, err = parseAddress(address, listen); err != nil {
		return Rule{}, err
	}
	for options != "" {
		var o string
		o, options, _ = strings.Cut(options, ",")
		if err := r.option(o, listen); err != nil {
			return Rule{}, err
		}
	}
	if r.Type == packet.SeqPacket && r.Host.Network == TCP {
		return Rule{}, errors.New("type=seqpacket needs a unix: or vsock: socket: TCP has no messages")
	}
	return r, nil
}

func (r *Rule) option(s string, listen bool) (err error) {
	key, value, _ := strings.Cut(s, "=")
	file := listen && r.Host.Network == Unix
	switch {
	case key == "type":
		r.Type, err = parseType(value)
	case key == "wait" && listen:
		r.Wait, err = ParseWait(value)
	case key == "mode" && file:
		r.File.Mode, err = ParseMode(value)
	case key == "owner" && file:
		r.File.UID, r.File.GID, err = ParseOwner(value)
	case file:
		return fmt.Errorf("unknown option %q: a listening unix: socket has mode=, owner=, type= and wait= (a path cannot contain a comma)", s)
	case listen:
		return fmt.Errorf("unknown option %q: here are type= and wait=", s)
	default:
		return fmt.Errorf("unknown option %q: to connect there is type= alone (a path cannot contain a comma)", s)
	}
	return err
}

func parseType(s string) (packet.Type, error) {
	switch s {
	case "stream":
		return packet.Stream, nil
	case "seqpacket":
		return packet.SeqPacket, nil
	}
	return 0, fmt.Errorf("type=%s: use stream or seqpacket", s)
}

// ParseWait reads how long a client may be made to wait for the guest.
func ParseWait(s string) (time.Duration, error) {
	d, err := time.ParseDuration(s)
	if err != nil || d < 0 || d > MaxWait {
		return 0, fmt.Errorf("wait=%s: use a duration up to %v, like 5s", s, MaxWait)
	}
	return d, nil
}

// ParseMode reads the permissions of a file, in octal.
func ParseMode(s string) (os.FileMode, error) {
	n, err := strconv.ParseUint(s, 8, 32)
	if err != nil || n == 0 || n > 0o777 {
		return 0, fmt.Errorf("mode=%s: use octal digits up to 0777, like 0660", s)
	}
	return os.FileMode(n), nil
}

// ParseOwner reads USER, USER:GROUP or :GROUP, by name or number. What is not
// given is 0, which leaves it as it is.
func ParseOwner(s string) (uid, gid int, err error) {
	u, g, _ := strings.Cut(s, ":")
	if u == "" && g == "" {
		return 0, 0, errors.New("owner= needs USER, USER:GROUP or :GROUP")
	}
	if uid, err = id(u, lookupUser); err == nil {
		gid, err = id(g, lookupGroup)
	}
	switch {
	case err != nil:
		return 0, 0, fmt.Errorf("owner=%s: %w", s, err)
	case os.Geteuid() != 0 && (u != "" && uid == 0 || g != "" && gid == 0):
		return 0, 0, fmt.Errorf("owner=%s: only root can give a file to root", s)
	}
	return uid, gid, nil
}

func id(s string, lookup func(string) (string, error)) (int, error) {
	if s == "" {
		return 0, nil
	}
	n, err := strconv.ParseUint(s, 10, 31)
	if err == nil {
		return int(n), nil
	}
	if s, err = lookup(s); err != nil {
		return 0, err
	}
	return strconv.Atoi(s)
}

func lookupUser(name string) (string, error) {
	u, err := user.Lookup(name)
	if err != nil {
		return "", fmt.Errorf("there is no user %q on this host", name)
	}
	return u.Uid, nil
}

func lookupGroup(name string) (string, error) {
	g, err := user.LookupGroup(name)
	if err != nil {
		return "", fmt.Errorf("there is no group %q on this host", name)
	}
	return g.Gid, nil
}
