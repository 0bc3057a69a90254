package setup

import (
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"

	"guestwire/guestagent/proto"
)

const maxFile = proto.MaxFrame

// FromFile reads a configuration in YAML, whose keys are those of proto.Network.
func FromFile(path string) (*proto.Network, error) {
	st, err := os.Stat(path)
	switch {
	case err != nil:
		return nil, err
	case st.Size() > maxFile:
		return nil, fmt.Errorf("%s: %d bytes are too many, at most %d", path, st.Size(), maxFile)
	}
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	n := &proto.Network{}
	if err := yaml.UnmarshalWithOptions(b, n, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %s", path, yaml.FormatError(err, false, true))
	}
	if err := n.Check(); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return n, nil
}

// FromCmdline reads the guestwire.* words of a kernel's command line; nil without
// any. Lists have commas, and a key may come again for more:
//
//	guestwire.address=10.0.2.15/24,fd67::15/64 guestwire.gateway=10.0.2.2
//	guestwire.route=10.1.0.0/16,10.0.2.9 (or 10.1.0.0/16 alone: on the link)
//	guestwire.dns= search= mtu= hostname= link= queues= vsock-buffer=
//	guestwire.offloads=tso:on,gro:off
func FromCmdline(line string) (*proto.Network, error) {
	n, any := &proto.Network{}, false
	for word := range strings.FieldsSeq(line) {
		key, ok := strings.CutPrefix(word, "guestwire.")
		if !ok {
			continue
		}
		any = true
		key, value, _ := strings.Cut(key, "=")
		if err := setWord(n, key, value); err != nil {
			return nil, fmt.Errorf("kernel command line: guestwire.%s=%s: %w", key, value, err)
		}
	}
	if !any {
		return nil, nil
	}
	if err := n.Check(); err != nil {
		return nil, fmt.Errorf("kernel command line: %w", err)
	}
	return n, nil
}

func setWord(n *proto.Network, key, value string) (err error) {
	list := strings.Split(value, ",")
	switch key {
	case "link":
		n.Link = value
	case "hostname":
		n.Hostname = value
	case "search":
		n.Search = append(n.Search, list...)
	case "address":
		n.Addresses, err = parseAll(n.Addresses, list, netip.ParsePrefix)
	case "dns":
		n.DNS, err = parseAll(n.DNS, list, netip.ParseAddr)
	case "gateway":
		n.Routes, err = parseAll(n.Routes, list, defaultRoute)
	case "route":
		n.Routes, err = parseAll(n.Routes, []string{value}, route)
	case "mtu":
		n.MTU, err = strconv.Atoi(value)
	case "queues":
		n.Queues, err = strconv.Atoi(value)
	case "vsock-buffer":
		n.VsockBuffer, err = strconv.Atoi(value)
	case "offloads":
		err = offloads(n, list)
	default:
		err = fmt.Errorf("the keys are address, gateway, route, dns, search, mtu, hostname, link, queues, offloads, vsock-buffer")
	}
	return err
}

func parseAll[T any](to []T, list []string, parse func(string) (T, error)) ([]T, error) {
	for _, s := range list {
		v, err := parse(s)
		if err != nil {
			return to, err
		}
		to = append(to, v)
	}
	return to, nil
}

func defaultRoute(s string) (r proto.Route, err error) {
	r.Via, err = netip.ParseAddr(s)
	if r.To = netip.PrefixFrom(netip.IPv6Unspecified(), 0); r.Via.Is4() {
		r.To = netip.PrefixFrom(netip.IPv4Unspecified(), 0)
	}
	return r, err
}

func route(s string) (r proto.Route, err error) {
	to, via, hasVia := strings.Cut(s, ",")
	if r.To, err = netip.ParsePrefix(to); err == nil && hasVia {
		r.Via, err = netip.ParseAddr(via)
	}
	return r, err
}

func offloads(n *proto.Network, list []string) error {
	if n.Offloads == nil {
		n.Offloads = map[string]bool{}
	}
	for _, s := range list {
		name, how, _ := strings.Cut(s, ":")
		if how != "on" && how != "off" {
			return fmt.Errorf("%q: write NAME:on or NAME:off", s)
		}
		n.Offloads[name] = how == "on"
	}
	return nil
}
