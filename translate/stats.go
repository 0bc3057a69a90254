package translate

import (
	"guestwire/translate/forward"
	"guestwire/translate/neigh"
	"guestwire/translate/wire"
)

// counters are the translator's own drops: by the parser's verdict, and by
// where the frame was from or went.
type counters struct {
	parse [wire.NumVerdicts]uint64
	drops [NumDrops]uint64
}

// Each calls f with the name and value of every counter of translation.
func (t *Translator) Each(f func(name string, value uint64)) {
	for v := wire.OK + 1; v < wire.NumVerdicts; v++ {
		f("drop_"+v.String(), t.stats.parse[v])
	}
	for d := Admitted + 1; d < NumDrops; d++ {
		f("drop_"+d.String(), t.stats.drops[d])
	}
	for v, n := range t.policy.Counts() {
		f("policy_"+forward.Verdict(v).String(), n)
	}
	n := t.neigh.Stats()
	f("neigh_arp_replies", n.ARPReplies)
	f("neigh_advertisements", n.Advertisements)
	f("neigh_router_adverts", n.RouterAdverts)
	f("neigh_probes", n.Probes)
	for d, v := range n.Drops {
		f("neigh_drop_"+neigh.Drop(d).String(), v)
	}
	f("flows", uint64(t.flows.Len()))
	for _, room := range []struct {
		name string
		each func(func(string, uint64))
	}{
		{"tcp_", t.tcp.Each}, {"dhcp_", t.dhcp.Each}, {"dns_", t.dns.Each}, {"reasm_", t.reasm.Each},
		{"forward_", t.listeners.Each}, {"udp_", t.udp.Each}, {"icmp_", t.icmp.Each},
	} {
		room.each(func(name string, v uint64) { f(room.name+name, v) })
	}
}
