package neigh

import (
	"encoding/binary"
	"time"

	"guestwire/translate/dns"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Protocol constants of RFC 4861 6.2.1 and 10.
const (
	minInterval      = 200 * eventloop.Time(time.Second)
	maxInterval      = 600 * eventloop.Time(time.Second)
	initialInterval  = 16 * eventloop.Time(time.Second)
	initialAdverts   = 3
	routerLifetime   = 9000    // seconds, the most that 6.2.1 allows
	validLifetime    = 2592000 // 30 days
	preferredTime    = 604800  // 7 days
	maxNameServers   = 8
	raManaged        = 0x80
	raOther          = 0x40
	prefixOnLink     = 0x80
	prefixAutonomous = 0x40
)

// Options of a router advertisement.
const (
	optPrefix = 3  // RFC 4861 4.6.2
	optMTU    = 5  // RFC 4861 4.6.4
	optRDNSS  = 25 // RFC 8106 5.1
	optDNSSL  = 31 // RFC 8106 5.2
)

// advertInterval is the time to the next unsolicited advertisement. Random, so
// that guests which were started together do not answer together.
func (n *Neighbour) advertInterval() eventloop.Time {
	if n.adverts < initialAdverts {
		return initialInterval
	}
	const steps = uint32((maxInterval-minInterval)/eventloop.Time(time.Millisecond)) + 1
	return minInterval + eventloop.Time(n.c.Rand()%steps)*eventloop.Time(time.Millisecond)
}

// routerSolicit answers at once and to the sender alone: there is nobody else on
// the link to spread the answers for (RFC 4861 6.2.6).
func (n *Neighbour) routerSolicit(p *wire.Packet) {
	if !n.c.RA {
		n.drop(DropOther)
		return
	}
	if !n.limit.take(n.timers.Now()) {
		n.drop(DropRate)
		return
	}
	if p.Src.IsZero() {
		n.Announce()
		return
	}
	n.learn(p.Src, p.EthSrc)
	n.sendAdvert(p.Src, p.EthSrc)
}

func (n *Neighbour) sendAdvert(dst wire.Addr, mac wire.MAC) {
	k := n.putAdvert(n.out[n.port.L3Len(true):])
	if n.sendICMP(n.port.OurLL6, dst, mac, k) {
		n.stats.RouterAdverts++
	}
}

// putAdvert writes a router advertisement, at most 1240 bytes.
func (n *Neighbour) putAdvert(b []byte) int {
	flags := uint32(0)
	if n.c.DHCPv6 {
		flags = raManaged | raOther
	}
	k := wire.PutICMP(b, wire.ICMPv6RouterAdvert, 0, 64<<24|flags<<16|routerLifetime)
	clear(b[k : k+8]) // reachable time and retransmission timer: unspecified
	k += 8
	k += putLL(b[k:], optSourceLL, n.port.OurMAC)
	if n.c.MTU >= 1280 {
		b[k], b[k+1], b[k+2], b[k+3] = optMTU, 1, 0, 0
		binary.BigEndian.PutUint32(b[k+4:], n.c.MTU)
		k += 8
	}
	if n.c.Net6.IsValid() {
		k += n.putPrefix(b[k:])
	}
	k += putRDNSS(b[k:], n.c.RDNSS)
	if n.c.Search != nil {
		k += putDNSSL(b[k:], n.c.Search())
	}
	return k
}

func (n *Neighbour) putPrefix(b []byte) int {
	flags := uint8(prefixOnLink)
	if n.c.Net6.Bits() == 64 { // RFC 4862 5.5.3 d: prefix and interface identifier make 128
		flags |= prefixAutonomous
	}
	b[0], b[1], b[2], b[3] = optPrefix, 4, uint8(n.c.Net6.Bits()), flags
	binary.BigEndian.PutUint32(b[4:], validLifetime)
	binary.BigEndian.PutUint32(b[8:], preferredTime)
	clear(b[12:16])
	prefix := n.c.Net6.Masked().Addr().As16()
	copy(b[16:32], prefix[:])
	return 32
}

func putRDNSS(b []byte, servers []wire.Addr) int {
	k := 8
	for i, a := range servers {
		if i < maxNameServers && !a.Is4() {
			k += copy(b[k:], a[:])
		}
	}
	if k == 8 {
		return 0
	}
	b[0], b[1], b[2], b[3] = optRDNSS, uint8(k/8), 0, 0
	binary.BigEndian.PutUint32(b[4:], routerLifetime)
	return k
}

// putDNSSL writes as much of the search list as there is room for, in options of
// up to 248 bytes: RFC 8106 5.2 allows several, and receivers that compute the
// length of an option in one byte exist.
func putDNSSL(b []byte, search []string) int {
	const head, limit = 8, 31 * 8
	start, end := 0, head // the open option is b[start:end]
	closeOption := func() {
		if end == start+head {
			end = start // it has no name
			return
		}
		for ; (end-start)%8 != 0; end++ {
			b[end] = 0
		}
		b[start], b[start+1], b[start+2], b[start+3] = optDNSSL, uint8((end-start)/8), 0, 0
		binary.BigEndian.PutUint32(b[start+4:], routerLifetime)
	}
	var buf [256]byte
	for _, s := range search {
		name, ok := dns.AppendName(buf[:0], s)
		if !ok || head+len(name) > limit {
			continue
		}
		if end-start+len(name) > limit {
			closeOption()
			start, end = end, end+head
		}
		if roundUp(end+len(name)) > len(b) {
			break
		}
		end += copy(b[end:], name)
	}
	closeOption()
	return end
}

func roundUp(n int) int { return (n + 7) &^ 7 }

// sendProbes looks for a guest that has not been heard yet, so that inbound
// connections need not wait for it to speak.
func (n *Neighbour) sendProbes() {
	if !n.port.MAC.IsZero() && n.probes > 0 {
		return
	}
	sent := n.stats.Probes
	if n.c.IPv4 && !n.c.Guest4.IsZero() {
		n.sendARP(wire.Broadcast, &arpPacket{
			op: arpRequest, senderMAC: n.port.OurMAC, sender: n.port.Gateway4, target: n.c.Guest4,
		}, &n.stats.Probes)
	}
	if n.c.IPv6 && n.c.NDP && !n.c.Guest6.IsZero() {
		n.sendNS(n.c.Guest6)
	}
	n.owesProbe = n.stats.Probes == sent
	wait := eventloop.Time(time.Second) << min(n.probes, 6)
	n.timers.Set(n.probe, n.timers.Now()+min(wait, 60*eventloop.Time(time.Second)))
	n.probes++
}
