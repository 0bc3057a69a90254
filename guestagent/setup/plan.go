package setup

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"guestwire/guestagent/proto"
)

// Kind is what can be set. Their order is the order of changes.
type Kind string

const (
	Offload     Kind = "offload"  // Name: the kernel's for it. on, off
	Queues      Kind = "queues"   // pairs
	MTU         Kind = "mtu"      // bytes
	Link        Kind = "link"     // Name: the link's. up, down
	Address     Kind = "address"  // Name: address and prefix length. set
	Route       Kind = "route"    // Name: prefix. direct, via ADDRESS
	DNS         Kind = "dns"      // the text of a resolv.conf
	Hostname    Kind = "hostname" //
	VsockBuffer Kind = "vsock buffer"
)

var order = []Kind{Offload, Queues, MTU, Link, Address, Route, DNS, Hostname, VsockBuffer}

// Key is one thing that can be set.
type Key struct {
	Kind Kind
	Name string
}

// State is the value of each Key; "" and absent are the same: it is not there.
type State map[Key]string

// Change is one difference.
type Change struct {
	Key
	From, To string
}

// String is one line.
func (c Change) String() string {
	name := string(c.Kind)
	if c.Name != "" {
		name += " " + c.Name
	}
	from, to := oneLine(c.From), oneLine(c.To)
	switch {
	case c.Kind == Address && to != "":
		return name + ": added"
	case to == "":
		return name + ": removed"
	case from == "":
		return name + ": " + to
	}
	return fmt.Sprintf("%s: %s, was %s", name, to, from)
}

func oneLine(s string) string { return strings.ReplaceAll(strings.TrimSpace(s), "\n", "; ") }

// wanted spells out what a configuration wants of a link.
func wanted(n *proto.Network, link string) State {
	w := State{{Link, "lo"}: "up", {Link, link}: "up"}
	for _, p := range n.Addresses {
		w[Key{Address, p.String()}] = "set"
	}
	for _, r := range n.Routes {
		to := "direct"
		if r.Via.IsValid() {
			to = "via " + r.Via.String()
		}
		w[Key{Route, r.To.String()}] = to
	}
	for name, on := range n.Offloads {
		for _, feature := range features(name) {
			w[Key{Offload, feature}] = map[bool]string{true: "on", false: "off"}[on]
		}
	}
	for key, v := range map[Key]int{{Queues, ""}: n.Queues, {MTU, ""}: n.MTU, {VsockBuffer, ""}: n.VsockBuffer} {
		if v != 0 {
			w[key] = strconv.Itoa(v)
		}
	}
	if n.Hostname != "" {
		w[Key{Hostname, ""}] = n.Hostname
	}
	if len(n.DNS)+len(n.Search) > 0 {
		w[Key{DNS, ""}] = resolvConf(n)
	}
	return w
}

// resolvConf is the resolvers as a resolv.conf has them.
func resolvConf(n *proto.Network) string {
	var b strings.Builder
	for _, a := range n.DNS {
		fmt.Fprintf(&b, "nameserver %v\n", a)
	}
	if len(n.Search) > 0 {
		fmt.Fprintf(&b, "search %s\n", strings.Join(n.Search, " "))
	}
	return b.String()
}

// plan lists the changes from what is there to what is wanted, in order. first is
// what was there before we came, of everything that we have changed.
func plan(want, have, first State) []Change {
	var gone, come []Change
	for key, was := range first {
		if _, still := want[key]; !still && have[key] != was {
			gone = append(gone, Change{key, have[key], was})
		}
	}
	for key, to := range want {
		if have[key] != to {
			come = append(come, Change{key, have[key], to})
		}
	}
	byOrder := func(a, b Change) int {
		return cmp.Or(cmp.Compare(slices.Index(order, a.Kind), slices.Index(order, b.Kind)), cmp.Compare(a.Name, b.Name))
	}
	slices.SortFunc(gone, byOrder)
	slices.SortFunc(come, byOrder)
	slices.Reverse(gone)
	return append(gone, come...)
}

// displace has go what stands in the way of a wanted IPv6 address: the same one
// with another prefix length, of which a link has only one. DHCPv6 clients leave
// such (a /128).
func displace(want, have, first State) {
	bits := map[netip.Addr]int{}
	for key, to := range want {
		if p, err := netip.ParsePrefix(key.Name); key.Kind == Address && to != "" && err == nil && p.Addr().Is6() {
			bits[p.Addr()] = p.Bits()
		}
	}
	for _, there := range []State{have, first} { // gone before, and to stay so
		for key := range there {
			if p, err := netip.ParsePrefix(key.Name); key.Kind == Address && err == nil {
				if n, ok := bits[p.Addr()]; ok && n != p.Bits() {
					want[key] = ""
				}
			}
		}
	}
}

// settled drops from first what is as it was and not wanted any more: it is not
// ours any longer.
func settled(want, have, first State) {
	for key, was := range first {
		if _, still := want[key]; !still && have[key] == was {
			delete(first, key)
		}
	}
}

// shortNames are those of ethtool -K, and uso; each stands for features of the
// kernel (net/ethtool/common.c, netdev_features_strings).
var shortNames = map[string][]string{
	"rx":  {"rx-checksum"},
	"tx":  {"tx-checksum-ip-generic"},
	"sg":  {"tx-scatter-gather"},
	"tso": {"tx-tcp-segmentation", "tx-tcp6-segmentation", "tx-tcp-ecn-segmentation"},
	"uso": {"tx-udp-segmentation"},
	"gso": {"tx-generic-segmentation"},
	"gro": {"rx-gro"},
	"lro": {"rx-gro-hw"}, // what virtio-net has of it
}

func features(name string) []string {
	if list := shortNames[name]; list != nil {
		return list
	}
	return []string{name}
}
