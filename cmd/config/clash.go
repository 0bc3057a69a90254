package config

import (
	"fmt"
	"path/filepath"
	"strconv"

	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
)

// claim is something of the host, or a name, that only one guest can have.
type claim struct {
	device string // net or vsock
	option string // --guest-cid
	what   string // "CID"
	value  string
}

// clash says that a guest claims what another one, or it itself, has claimed.
type clash struct {
	claim
	guest, other int
	otherDevice  string
	otherOption  string
}

// err says it as an error of the later guest's option; earlier is where the
// other one stands, if in a file.
func (c *clash) err(guests []Guest, earlier section) error {
	whose := "this guest's " + c.otherDevice
	if c.guest != c.other {
		whose = "another guest"
		if n := guests[c.other].Name; n != "" {
			whose = "guest " + n
		}
	}
	if at := earlier.keys[c.otherOption[2:]]; at != nil {
		whose += fmt.Sprintf(" (line %d)", at.Line)
	}
	return wrong(c.option, c.value, "%s has this %s already: choose another one", whose, c.what)
}

// Clash reports the first thing that two guests of a command line both claim.
func Clash(guests []Guest) error {
	if cs := clashes(guests); len(cs) > 0 {
		return cs[0].err(guests, section{})
	}
	return nil
}

func clashes(guests []Guest) []clash {
	type owner struct {
		guest int
		claim claim
	}
	var list []clash
	owners := map[[2]string]owner{}
	for i := range guests {
		for _, c := range claims(&guests[i]) {
			key := [2]string{c.what, c.value}
			if o, taken := owners[key]; taken {
				list = append(list, clash{c, i, o.guest, o.claim.device, o.claim.option})
				continue
			}
			owners[key] = owner{i, c}
		}
		for j := range i {
			list = append(list, portClashes(guests, i, j)...)
		}
	}
	return list
}

// claims lists what a guest wants for itself, ports aside. Paths are compared as
// absolute ones.
func claims(g *Guest) []claim {
	var list []claim
	path := func(device, option, what, p string) {
		if p == "" {
			return
		}
		if a, err := filepath.Abs(p); err == nil && p[0] != '@' {
			p = a
		}
		list = append(list, claim{device, option, what, p})
	}
	if n := g.Net; n != nil {
		path("net", "--socket-path", "socket", n.SocketPath)
		path("net", "--pcap", "file", n.Pcap)
	}
	if v := g.Vsock; v != nil {
		list = append(list, claim{"vsock", "--guest-cid", "CID", strconv.FormatUint(v.CID, 10)})
		path("vsock", "--socket-path", "socket", v.SocketPath)
	}
	return list
}

// portClashes compares the port forwards of two guests.
func portClashes(guests []Guest, guest, other int) []clash {
	if guests[guest].Net == nil || guests[other].Net == nil {
		return nil
	}
	var list []clash
	for _, r := range guests[guest].Net.Forwards {
		for _, o := range guests[other].Net.Forwards {
			if forward.CheckOverlap([]forward.Rule{o, r}) != nil {
				option := "--tcp-ports"
				if r.Proto == hostsock.UDP {
					option = "--udp-ports"
				}
				list = append(list, clash{claim{"net", option, "port of the host", r.String()}, guest, other, "net", option})
				break
			}
		}
	}
	return list
}
