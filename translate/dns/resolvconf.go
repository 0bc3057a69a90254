package dns

import (
	"bytes"
	"net/netip"
	"strings"
)

// ResolvConf is what resolv.conf(5) says that matters here. It is a Resolver.
type ResolvConf struct {
	Servers []netip.AddrPort // in order, at most 8
	Domains []string         // search list, at most 32
}

// Upstreams implements Resolver.
func (c *ResolvConf) Upstreams() []netip.AddrPort { return c.Servers }

// Search implements Resolver.
func (c *ResolvConf) Search() []string { return c.Domains }

const (
	maxResolvConf = 64 << 10
	maxDomains    = 32
)

// ParseResolvConf reads the text of a resolv.conf file. What it does not
// understand it skips, like the C library does; no text is an error, and none
// gives no servers.
func ParseResolvConf(text []byte) ResolvConf {
	var c ResolvConf
	text = text[:min(len(text), maxResolvConf)]
	for line := range bytes.Lines(text) {
		// Comments begin in the first column there, but editors of the file do not
		// know that.
		if i := bytes.IndexAny(line, "#;"); i >= 0 {
			line = line[:i]
		}
		f := strings.Fields(string(line))
		if len(f) < 2 {
			continue
		}
		switch f[0] {
		case "nameserver":
			a, err := netip.ParseAddr(f[1])
			if err == nil && len(c.Servers) < maxUpstreams {
				c.Servers = append(c.Servers, netip.AddrPortFrom(a.Unmap(), Port))
			}
		case "domain":
			c.Domains = domains(f[1:2]) // the last of domain and search counts
		case "search":
			c.Domains = domains(f[1:])
		}
	}
	return c
}

// domains keeps what is a domain name. "." means an empty list.
func domains(names []string) (list []string) {
	var b [maxName + 1]byte
	for _, s := range names {
		if _, ok := AppendName(b[:0], s); ok && len(list) < maxDomains {
			list = append(list, strings.TrimSuffix(s, "."))
		}
	}
	return list
}
