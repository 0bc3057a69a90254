package config

import (
	"fmt"
	"path/filepath"
	"strconv"

	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
	"guestwire/vsockbridge/hostside"
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
	ports := make([][]listened, len(guests))
	for i := range guests {
		ports[i] = listening(&guests[i])
		for _, c := range claims(&guests[i]) {
			key := [2]string{c.what, c.value}
			if o, taken := owners[key]; taken {
				list = append(list, clash{c, i, o.guest, o.claim.device, o.claim.option})
				continue
			}
			owners[key] = owner{i, c}
		}
		for n, p := range ports[i] {
			for j := range i + 1 {
				others := ports[j]
				if i == j {
					others = others[:n] // of its own, those before it
				}
				if o := overlapping(p, others); o != nil {
					list = append(list, clash{p.claim(), i, j, o.device, o.option})
				}
			}
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
		if p := v.Host.UDSPath; p != "" {
			path("vsock", "--uds-path", "socket", p)
			path("vsock", "--uds-path", "socket", p+"_seqpacket")
		}
		for _, r := range v.Host.Listen {
			switch r.Host.Network {
			case hostside.Unix:
				path("vsock", "--listen", "socket", r.Host.Path)
			case hostside.Vsock:
				list = append(list, claim{"vsock", "--listen", "port of the host", r.Host.String()})
			}
		}
	}
	return list
}

// listened is a range of TCP or UDP ports of the host, and the option that wants
// it.
type listened struct {
	device, option string
	rule           forward.Rule
}

// listening lists the TCP and UDP ports of the host that lead to a guest.
func listening(g *Guest) (list []listened) {
	if g.Net != nil {
		for _, r := range g.Net.Forwards {
			option := "--tcp-ports"
			if r.Proto == hostsock.UDP {
				option = "--udp-ports"
			}
			list = append(list, listened{"net", option, r})
		}
	}
	if g.Vsock != nil {
		for _, r := range g.Vsock.Host.Listen {
			if at := r.Host.TCP; r.Host.Network == hostside.TCP && r.Host.Name == "" {
				list = append(list, listened{"vsock", "--listen", forward.Rule{
					Proto: hostsock.TCP, Addr: at.Addr(), First: at.Port(), Last: at.Port(), ToFirst: uint16(r.Port),
				}})
			}
		}
	}
	return list
}

func (l *listened) claim() claim {
	return claim{l.device, l.option, "port of the host", l.rule.String()}
}

// overlapping returns the first of others that p cannot be had with, nil if none.
func overlapping(p listened, others []listened) *listened {
	for i := range others {
		if forward.CheckOverlap([]forward.Rule{others[i].rule, p.rule}) != nil {
			return &others[i]
		}
	}
	return nil
}
