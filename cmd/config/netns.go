package config

import (
	"strings"

	"guestwire/translate/forward"
	"guestwire/translate/hostsock"
)

// NetnsOptions is the command line of `guestwire netns`, as typed.
type NetnsOptions struct {
	Net Options

	ConfigNet  bool   `key:"config-net"`
	IfName     string `key:"ns-ifname"`
	NoPIDNS    bool   `key:"no-pidns"`
	LoopToLoop bool   `key:"host-lo-to-ns-lo"`

	VhostKernel string `key:"vhost-kernel"`

	TCPOut []string `key:"tcp-ns"`
	UDPOut []string `key:"udp-ns"`
}

// Netns is the complete, validated configuration of a namespace's network.
type Netns struct {
	Net    *Net // Transport Tap; FD is filled in when there is one
	IfName string

	Out        []forward.Rule // from the namespace's loopback to the host's
	Auto       Auto
	LoopToLoop bool // what comes from the host's loopback goes to the namespace's
}

// Auto says of which forwards the ports are those that something listens on, at
// any time.
type Auto struct{ TCPIn, UDPIn, TCPOut, UDPOut bool }

const (
	defaultIfName   = "eth0"
	defaultNetnsMTU = MaxMTU
	maxIfName       = 15
)

// ResolveNetns validates o. host is asked for only with `--address host`.
func ResolveNetns(o *NetnsOptions, host func() (HostNet, error)) (*Netns, error) {
	n := &Netns{IfName: o.IfName, LoopToLoop: o.LoopToLoop}
	if n.IfName == "" {
		n.IfName = defaultIfName
	}
	if len(n.IfName) > maxIfName || strings.ContainsAny(n.IfName, "/ :") || n.IfName == "." || n.IfName == ".." {
		return nil, wrong("--ns-ifname", o.IfName, "an interface name has 1 to %d characters, without / : and blanks", maxIfName)
	}
	net := o.Net
	net.Transport, net.FD = string(Stream), 0 // some valid ones: the interface is not there yet
	if net.MTU == 0 {
		net.MTU = defaultNetnsMTU
	}
	var out Options
	for _, f := range []struct {
		option   string
		from, to *[]string
		auto     *bool
	}{
		{"--tcp-ports", &o.Net.TCPPorts, &net.TCPPorts, &n.Auto.TCPIn},
		{"--udp-ports", &o.Net.UDPPorts, &net.UDPPorts, &n.Auto.UDPIn},
		{"--tcp-ns", &o.TCPOut, &out.TCPPorts, &n.Auto.TCPOut},
		{"--udp-ns", &o.UDPOut, &out.UDPPorts, &n.Auto.UDPOut},
	} {
		var err error
		if *f.to, *f.auto, err = auto(f.option, *f.from); err != nil {
			return nil, err
		}
	}
	var err error
	if n.Net, err = Resolve(&net, host); err != nil {
		return nil, err
	}
	n.Net.Transport, n.Net.FD = Tap, -1
	if n.Net.Vhost, err = vhostKernel(o.VhostKernel); err != nil {
		return nil, err
	}
	n.Out, err = outward(&out)
	return n, err
}

// auto takes the word auto out of port specifications.
func auto(option string, specs []string) (rest []string, found bool, err error) {
	for _, s := range specs {
		if s == "auto" {
			found = true
		} else {
			rest = append(rest, s)
		}
	}
	if found && len(rest) > 0 {
		return nil, false, wrong(option, rest[0], "cannot stand beside auto, which follows what listens: give one or the other")
	}
	return rest, found, nil
}

// outward reads -T and -U: the ports are those of the namespace's loopback, and what
// they lead to is the host's.
func outward(o *Options) (rules []forward.Rule, err error) {
	for _, f := range []struct {
		option string
		proto  hostsock.Proto
		specs  []string
	}{{"--tcp-ns", hostsock.TCP, o.TCPPorts}, {"--udp-ns", hostsock.UDP, o.UDPPorts}} {
		rs, err := localPorts().ParseSpecs(f.proto, f.specs)
		if err != nil {
			return nil, &Error{Option: f.option, Want: err.Error()}
		}
		for _, r := range rs {
			switch {
			case r.Device != "":
				return nil, wrong(f.option, r.String(), "these forwards begin on the namespace's loopback: name no interface")
			case r.First == 0:
				return nil, wrong(f.option, r.String(), "say which port: the namespace could not know it")
			case r.ToAddr.IsValid():
				return nil, wrong(f.option, r.String(), "these forwards lead to the host's loopback: name no address there (others the namespace reaches by itself)")
			}
		}
		rules = append(rules, rs...)
	}
	return rules, nil
}
