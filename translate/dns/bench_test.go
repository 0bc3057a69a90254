package dns

import (
	"net"
	"net/netip"
	"syscall"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	mdns "github.com/miekg/dns"

	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

var (
	guestMAC = wire.MAC{0x02, 0, 0, 0, 0, 0x15}
	ourMAC   = wire.MAC{0x52, 0x55, 0x0a, 0, 0x02, 0x02}
	up1      = netip.MustParseAddrPort("192.0.2.53:53")
	up2      = netip.MustParseAddrPort("[2001:db8::53]:53")
	up3      = netip.MustParseAddrPort("127.0.0.53:5353")
)

// sent is one datagram that the forwarder gave to the host.
type sent struct {
	fd hostsock.FD
	to netip.AddrPort
	b  []byte
}

// host is a host with UDP sockets and nothing else; any other call panics.
type host struct {
	hostsock.Host
	open     map[hostsock.FD]netip.AddrPort
	cookie   map[hostsock.FD]uint32
	next     hostsock.FD
	sent     []sent
	queue    map[hostsock.FD][]hostsock.Message
	sendErr  map[netip.AddrPort]syscall.Errno
	recvErr  syscall.Errno // once
	dialErr  syscall.Errno
	watchErr syscall.Errno
	dials    int
}

func (h *host) Dial(p hostsock.Proto, to netip.AddrPort, o *hostsock.Options) (hostsock.FD, syscall.Errno) {
	if p != hostsock.UDP {
		panic("not UDP")
	}
	if h.dialErr != 0 {
		return hostsock.None, h.dialErr
	}
	h.next++
	h.dials++
	h.open[h.next] = to
	return h.next, 0
}

func (h *host) Watch(fd hostsock.FD, ev eventloop.Events, s eventloop.Source, cookie uint32) syscall.Errno {
	h.cookie[fd] = cookie
	return h.watchErr
}

func (h *host) Close(fd hostsock.FD, abort bool) {
	if _, ok := h.open[fd]; !ok {
		panic("close of a closed socket")
	}
	delete(h.open, fd)
	delete(h.queue, fd)
}

func (h *host) Send(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	to, ok := h.open[fd]
	if !ok {
		panic("send on a closed socket")
	}
	if e := h.sendErr[to]; e != 0 {
		return 0, e
	}
	var b []byte
	for _, s := range m[0].Bufs {
		b = append(b, s...)
	}
	h.sent = append(h.sent, sent{fd, to, b})
	return 1, 0
}

func (h *host) Recv(fd hostsock.FD, m []hostsock.Message) (int, syscall.Errno) {
	if e := h.recvErr; e != 0 {
		h.recvErr = 0
		return 0, e
	}
	q := h.queue[fd]
	if len(q) == 0 {
		return 0, syscall.EAGAIN
	}
	h.queue[fd] = q[1:]
	m[0].N = copy(m[0].Bufs[0], q[0].Bufs[0])
	m[0].SegSize, m[0].Trunc = q[0].SegSize, q[0].Trunc
	return 1, 0
}

func (h *host) Errors(hostsock.FD, []byte) (hostsock.SockErr, syscall.Errno) {
	return hostsock.SockErr{}, syscall.EAGAIN
}
func (h *host) SocketError(hostsock.FD) syscall.Errno { return 0 }

type resolver struct{ ups []netip.AddrPort }

func (r *resolver) Upstreams() []netip.AddrPort { return r.ups }
func (r *resolver) Search() []string            { return nil }

type bench struct {
	t      testing.TB
	r      *Forwarder
	h      *host
	ep     *linktest.Endpoint
	port   *guest.Port
	timers *eventloop.Wheel
	res    *resolver
	logs   []string
	seed   uint32
}

func newBench(t testing.TB, ups ...netip.AddrPort) *bench {
	t.Helper()
	b := &bench{t: t, ep: linktest.NewEndpoint(t, link.Caps{MTU: 1500}), timers: eventloop.NewWheel(0), res: &resolver{ups}, seed: 1}
	b.h = &host{open: map[hostsock.FD]netip.AddrPort{}, cookie: map[hostsock.FD]uint32{},
		queue: map[hostsock.FD][]hostsock.Message{}, sendErr: map[netip.AddrPort]syscall.Errno{}}
	b.port = &guest.Port{EP: b.ep, Caps: b.ep.Caps(), Up: true, OurMAC: ourMAC, MAC: guestMAC}
	b.r = New(Config{}, Deps{Port: b.port, Host: b.h, Timers: b.timers, Resolver: b.res,
		Rand: func() uint32 { b.seed = b.seed*1664525 + 1013904223; return b.seed >> 8 },
		Log:  func(f string, a ...any) { b.logs = append(b.logs, f) }})
	return b
}

// ask sends raw bytes from the guest's port.
func (b *bench) ask(v6 bool, port uint16, msg []byte) {
	b.t.Helper()
	eth := &layers.Ethernet{SrcMAC: guestMAC[:], DstMAC: ourMAC[:], EthernetType: layers.EthernetTypeIPv4}
	udp := &layers.UDP{SrcPort: layers.UDPPort(port), DstPort: 53}
	var ip gopacket.SerializableLayer
	if v6 {
		eth.EthernetType = layers.EthernetTypeIPv6
		l := &layers.IPv6{Version: 6, NextHeader: layers.IPProtocolUDP, HopLimit: 64,
			SrcIP: net.ParseIP("fd67:7765:7374::15"), DstIP: net.ParseIP("fd67:7765:7374::3")}
		_ = udp.SetNetworkLayerForChecksum(l)
		ip = l
	} else {
		l := &layers.IPv4{Version: 4, Protocol: layers.IPProtocolUDP, TTL: 64, SrcIP: net.IPv4(10, 0, 2, 15), DstIP: net.IPv4(10, 0, 2, 3)}
		_ = udp.SetNetworkLayerForChecksum(l)
		ip = l
	}
	buf := gopacket.NewSerializeBuffer()
	if err := gopacket.SerializeLayers(buf, gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}, eth, ip, udp, gopacket.Payload(msg)); err != nil {
		b.t.Fatal(err)
	}
	frame := buf.Bytes()
	var p wire.Packet
	f := link.Frame{Len: len(frame), Segs: [][]byte{frame[:60], frame[60:]}}
	if v := wire.Parse(&p, &f); v != wire.OK {
		b.t.Fatalf("wire.Parse: %v", v)
	}
	b.r.Input(&p, &f)
}

// upstream gives the forwarder what arrived on a socket.
func (b *bench) upstream(fd hostsock.FD, m ...hostsock.Message) {
	b.h.queue[fd] = append(b.h.queue[fd], m...)
	b.r.Ready(b.h.cookie[fd], eventloop.In)
}

func datagram(b []byte) hostsock.Message { return hostsock.Message{Bufs: [][]byte{b}} }

// took returns what went to the host since the last call.
func (b *bench) took() []sent {
	s := b.h.sent
	b.h.sent = nil
	return s
}

func (b *bench) one() sent {
	b.t.Helper()
	s := b.took()
	if len(s) != 1 {
		b.t.Fatalf("%d datagrams to upstreams, want 1", len(s))
	}
	return s[0]
}

// reply is an answer that reached the guest.
type reply struct {
	src, dst         string
	srcPort, dstPort uint16
	msg              []byte
}

// replies takes what reached the guest apart, putting fragments together with
// gopacket's view of them.
func (b *bench) replies() (all []reply) {
	b.t.Helper()
	for _, f := range b.ep.Take() {
		pkt := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
		udp, ok := pkt.Layer(layers.LayerTypeUDP).(*layers.UDP)
		if !ok {
			b.t.Fatalf("no UDP in % x", f.Data)
		}
		_ = udp.SetNetworkLayerForChecksum(pkt.NetworkLayer())
		if err, sum := udp.VerifyChecksum(); err != nil || !sum.Valid {
			b.t.Errorf("UDP checksum: %v %+v", err, sum)
		}
		flow := pkt.NetworkLayer().NetworkFlow()
		all = append(all, reply{flow.Src().String(), flow.Dst().String(), uint16(udp.SrcPort), uint16(udp.DstPort), udp.Payload})
	}
	return all
}

func (b *bench) advance(d time.Duration) {
	b.timers.Advance(b.timers.Now() + eventloop.Time(d))
}

func query1(t testing.TB, id uint16, name string, qtype uint16) []byte {
	t.Helper()
	m := new(mdns.Msg)
	m.SetQuestion(name, qtype)
	m.Id = id
	return pack(t, m)
}

func pack(t testing.TB, m *mdns.Msg) []byte {
	t.Helper()
	b, err := m.Pack()
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func unpack(t testing.TB, b []byte) *mdns.Msg {
	t.Helper()
	m := new(mdns.Msg)
	if err := m.Unpack(b); err != nil {
		t.Fatalf("%v in % x", err, b)
	}
	return m
}

// answerTo answers a query as a server would.
func answerTo(t testing.TB, query []byte, records ...string) []byte {
	t.Helper()
	m := new(mdns.Msg)
	m.SetReply(unpack(t, query))
	for _, s := range records {
		rr, err := mdns.NewRR(s)
		if err != nil {
			t.Fatal(err)
		}
		m.Answer = append(m.Answer, rr)
	}
	return pack(t, m)
}
