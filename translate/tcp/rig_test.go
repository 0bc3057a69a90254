package tcp

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"net"
	"net/netip"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop/eventlooptest"
)

// rig is an Engine between a guest made of frames and a scripted kernel.
type rig struct {
	t     testing.TB
	k     *hostsocktest.Kernel
	ep    *linktest.Endpoint
	time  *eventlooptest.Driver
	port  *guest.Port
	flows *flow.Table
	e     *Engine

	icmps    []icmpError
	refuse   bool // Outbound refuses
	seen     int  // frames of ep.Sent that were decoded
	maxFlows int
}

type icmpError struct {
	why  Why
	quot wire.Packet
}

type option func(*rig, *Config)

func noPeek(r *rig, _ *Config) { r.k.NoPeek = true }
func noCaps(r *rig, _ *Config) {
	c := &r.ep.Capabilities
	c.Csum, c.TSO4, c.TSO6, c.USO = false, false, false, false
}
func few(n int) option            { return func(r *rig, _ *Config) { r.maxFlows = n } }
func mtu(n int) option            { return func(r *rig, _ *Config) { r.ep.Capabilities.MTU = n } }
func with(f func(*Config)) option { return func(_ *rig, c *Config) { f(c) } }

var (
	guest4  = wire.FromNetip(netip.MustParseAddr("10.0.2.15"))
	guest6  = wire.FromNetip(netip.MustParseAddr("fd67:7765:7374::15"))
	target4 = netip.MustParseAddrPort("198.51.100.7:80")
	target6 = netip.MustParseAddrPort("[2001:db8::7]:80")
)

func newRig(t testing.TB, opts ...option) *rig {
	r := &rig{t: t, k: hostsocktest.New(t), time: eventlooptest.NewDriver(), maxFlows: 1 << 16}
	r.ep = linktest.NewEndpoint(t, linktest.AllCaps(1500))
	c := Config{Secret: [16]byte{1, 2, 3}}
	for _, o := range opts {
		o(r, &c)
	}
	r.flows = flow.NewTable(r.maxFlows, [16]byte{9})
	r.port = &guest.Port{
		EP: r.ep, Caps: r.ep.Caps(), Up: true,
		MAC: wire.MAC{0x52, 0x54, 0, 1, 2, 3}, OurMAC: wire.MAC{0x52, 0x55, 0x0a, 0, 2, 2},
		Addr4: guest4, Addr6: guest6,
	}
	r.e = New(c, Deps{
		Port: r.port, Host: r.k, Timers: r.time.Wheel, Flows: r.flows, Clock: r.time,
		Outbound:    func(dst wire.Addr, port uint16) (netip.AddrPort, bool) { return dst.AddrPort(port), !r.refuse },
		Unreachable: func(p *wire.Packet, why Why) { r.icmps = append(r.icmps, icmpError{why, *p}) },
	})
	return r
}

// clean fails the test unless every flow, timer, socket and buffer is gone.
func (r *rig) clean() {
	r.t.Helper()
	s := r.e.Stats()
	if s.Flows != 0 || s.HalfOpen != 0 || s.Waiting != 0 || s.BufferBytes != 0 || r.flows.Len() != 0 {
		r.t.Errorf("left over: %d conns, %d half open, %d waiting, %d buffer bytes, %d flows",
			s.Flows, s.HalfOpen, s.Waiting, s.BufferBytes, r.flows.Len())
	}
	if n := r.time.Wheel.Len(); n != 0 {
		r.t.Errorf("left over: %d timers", n)
	}
	if n := r.k.Open(); n != 0 {
		r.t.Errorf("left over: %d sockets", n)
	}
	if n := r.e.inBufs.Len() + r.e.outBufs.Len() + r.e.boards.Len(); n != 0 {
		r.t.Errorf("left over: %d buffer tables", n)
	}
	r.accounted()
}

// accounted fails the test unless every segment was counted exactly once.
func (r *rig) accounted() {
	r.t.Helper()
	s := r.e.Stats()
	n := s.Accepted
	for _, d := range s.Drops {
		n += d
	}
	if n != s.SegmentsIn {
		r.t.Errorf("%d segments in, %d accounted for: %+v", s.SegmentsIn, n, s)
	}
}

// wants fails the test unless the drop counters are exactly those given.
func (r *rig) drops(want map[Drop]uint64) {
	r.t.Helper()
	for d, n := range r.e.Stats().Drops {
		if n != want[Drop(d)] {
			r.t.Errorf("drop %v: %d, want %d", Drop(d), n, want[Drop(d)])
		}
	}
	r.accounted()
}

// seg is a segment as a test writes or reads it.
type seg struct {
	flags    string // of "SFRPAU"
	seq, ack uint32
	wnd      uint16
	data     []byte

	mss    int // -1: none
	wscale int // -1: none
	sackOK bool
	sack   [][2]uint32
	gso    link.GSO
	size   uint16 // GSO segment size
	urg    uint16
}

func (s seg) String() string {
	return fmt.Sprintf("%s seq %d ack %d wnd %d len %d sack %v", s.flags, s.seq, s.ack, s.wnd, len(s.data), s.sack)
}

// side is one end pair of a flow: the guest's socket and what it talks to.
type side struct {
	guest, remote         wire.Addr
	guestPort, remotePort uint16
}

func side4(port uint16) side {
	return side{guest4, wire.FromNetip(target4.Addr()), port, target4.Port()}
}

func side6(port uint16) side {
	return side{guest6, wire.FromNetip(target6.Addr()), port, target6.Port()}
}

// frame builds the guest's frame with gopacket.
func (r *rig) frame(d side, s seg) linktest.Frame {
	eth := &layers.Ethernet{
		SrcMAC: net.HardwareAddr(r.port.MAC[:]), DstMAC: net.HardwareAddr(r.port.OurMAC[:]), EthernetType: layers.EthernetTypeIPv4,
	}
	tcp := &layers.TCP{
		SrcPort: layers.TCPPort(d.guestPort), DstPort: layers.TCPPort(d.remotePort),
		Seq: s.seq, Ack: s.ack, Window: s.wnd, Urgent: s.urg,
	}
	for _, f := range s.flags {
		switch f {
		case 'S':
			tcp.SYN = true
		case 'F':
			tcp.FIN = true
		case 'R':
			tcp.RST = true
		case 'P':
			tcp.PSH = true
		case 'A':
			tcp.ACK = true
		case 'U':
			tcp.URG = true
		}
	}
	if s.mss > 0 {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindMSS, OptionData: be16(s.mss)})
	}
	if tcp.SYN && s.wscale >= 0 {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindWindowScale, OptionData: []byte{byte(s.wscale)}})
	}
	if s.sackOK {
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindSACKPermitted})
	}
	if len(s.sack) > 0 {
		var b []byte
		for _, k := range s.sack {
			b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, k[0]), k[1])
		}
		tcp.Options = append(tcp.Options, layers.TCPOption{OptionType: layers.TCPOptionKindSACK, OptionData: b})
	}
	var ip gopacket.SerializableLayer
	if d.guest.Is4() {
		h := &layers.IPv4{Version: 4, TTL: 64, Protocol: layers.IPProtocolTCP, SrcIP: d.guest.ToNetip().AsSlice(), DstIP: d.remote.ToNetip().AsSlice()}
		_ = tcp.SetNetworkLayerForChecksum(h)
		ip = h
	} else {
		eth.EthernetType = layers.EthernetTypeIPv6
		h := &layers.IPv6{Version: 6, HopLimit: 64, NextHeader: layers.IPProtocolTCP, SrcIP: d.guest.ToNetip().AsSlice(), DstIP: d.remote.ToNetip().AsSlice()}
		_ = tcp.SetNetworkLayerForChecksum(h)
		ip = h
	}
	buf := gopacket.NewSerializeBuffer()
	opt := gopacket.SerializeOptions{FixLengths: true, ComputeChecksums: true}
	if err := gopacket.SerializeLayers(buf, opt, eth, ip, tcp, gopacket.Payload(s.data)); err != nil {
		r.t.Fatal(err)
	}
	return linktest.Frame{Data: bytes.Clone(buf.Bytes())}
}

func be16(n int) []byte { return []byte{byte(n >> 8), byte(n)} }

// input gives the engine one batch.
func (r *rig) input(frames ...linktest.Frame) {
	r.t.Helper()
	r.parsed(linktest.Batch(4096, frames...))
}

// parsed gives the engine one batch as a device cut it.
func (r *rig) parsed(batch []link.Frame) {
	r.t.Helper()
	for i := range batch {
		var p wire.Packet
		if v := wire.Parse(&p, &batch[i]); v != wire.OK {
			r.t.Fatalf("frame does not parse: %v", v)
		}
		r.e.Input(&p, &batch[i])
	}
	r.e.EndBatch()
	for i := range batch { // the memory goes back to the guest
		for _, s := range batch[i].Segs {
			clear(s)
		}
	}
}

// take decodes what was sent to the guest since the last call.
func (r *rig) take(d side) (out []seg) {
	r.t.Helper()
	for ; r.seen < len(r.ep.Sent); r.seen++ {
		out = append(out, r.decode(d, r.ep.Sent[r.seen]))
	}
	return out
}

// decode reads one frame to the guest with gopacket, and checks what every frame
// must have right.
func (r *rig) decode(d side, f linktest.Frame) seg {
	r.t.Helper()
	pkt := gopacket.NewPacket(f.Data, layers.LayerTypeEthernet, gopacket.Default)
	if err := pkt.ErrorLayer(); err != nil {
		r.t.Fatalf("frame to the guest: %v", err.Error())
	}
	eth := pkt.Layer(layers.LayerTypeEthernet).(*layers.Ethernet)
	if wire.MAC(eth.DstMAC) != r.port.MAC || wire.MAC(eth.SrcMAC) != r.port.OurMAC {
		r.t.Fatalf("frame from %v to %v", eth.SrcMAC, eth.DstMAC)
	}
	tcp, ok := pkt.Layer(layers.LayerTypeTCP).(*layers.TCP)
	if !ok {
		r.t.Fatalf("not TCP: %v", pkt)
	}
	src, dst := pkt.NetworkLayer().NetworkFlow().Endpoints()
	if a := d.remote.ToNetip().AsSlice(); !bytes.Equal(src.Raw(), a) || uint16(tcp.SrcPort) != d.remotePort {
		r.t.Fatalf("from %v:%d, want %v:%d", src, tcp.SrcPort, d.remote, d.remotePort)
	}
	if a := d.guest.ToNetip().AsSlice(); !bytes.Equal(dst.Raw(), a) || uint16(tcp.DstPort) != d.guestPort {
		r.t.Fatalf("to %v:%d, want %v:%d", dst, tcp.DstPort, d.guest, d.guestPort)
	}
	r.checkSum(f, src.Raw(), dst.Raw())
	s := seg{seq: tcp.Seq, ack: tcp.Ack, wnd: tcp.Window, data: tcp.Payload, mss: -1, wscale: -1, gso: f.Off.GSO, size: f.Off.SegSize}
	for i, on := range []bool{tcp.SYN, tcp.FIN, tcp.RST, tcp.PSH, tcp.ACK, tcp.URG} {
		if on {
			s.flags += "SFRPAU"[i : i+1]
		}
	}
	for _, o := range tcp.Options {
		switch o.OptionType {
		case layers.TCPOptionKindMSS:
			s.mss = int(binary.BigEndian.Uint16(o.OptionData))
		case layers.TCPOptionKindWindowScale:
			s.wscale = int(o.OptionData[0])
		case layers.TCPOptionKindSACKPermitted:
			s.sackOK = true
		case layers.TCPOptionKindSACK:
			for b := o.OptionData; len(b) >= 8; b = b[8:] {
				s.sack = append(s.sack, [2]uint32{binary.BigEndian.Uint32(b), binary.BigEndian.Uint32(b[4:])})
			}
		}
	}
	return s
}

// checkSum verifies the TCP checksum, or with an offload the pseudo header's,
// from the definition (RFC 9293 3.1).
func (r *rig) checkSum(f linktest.Frame, src, dst []byte) {
	r.t.Helper()
	l4 := f.Data[14+20:]
	if len(src) == 16 {
		l4 = f.Data[14+40:]
	}
	var sum uint32
	add := func(b []byte) {
		for i := 0; i < len(b); i += 2 {
			w := uint32(b[i]) << 8
			if i+1 < len(b) {
				w |= uint32(b[i+1])
			}
			sum += w
			sum = sum>>16 + sum&0xffff
		}
	}
	add(src)
	add(dst)
	add([]byte{0, 6, byte(len(l4) >> 16), byte(len(l4) >> 16), byte(len(l4) >> 8), byte(len(l4))})
	if f.Off.NeedsCsum {
		if int(f.Off.CsumStart) != len(f.Data)-len(l4) || f.Off.CsumOff != 16 {
			r.t.Fatalf("checksum offload %+v in a frame of %d with L4 at %d", f.Off, len(f.Data), len(f.Data)-len(l4))
		}
		if got := binary.BigEndian.Uint16(l4[16:]); uint32(got) != sum {
			r.t.Fatalf("pseudo header sum %#x, want %#x", got, sum)
		}
		return
	}
	add(l4)
	if sum != 0xffff {
		r.t.Fatalf("wrong checksum: sum %#x", sum)
	}
}

// advance lets time pass and runs what it brings.
func (r *rig) advance(d time.Duration) {
	r.time.Advance(d)
	r.k.Run()
}

// g is the guest's side of one connection, played by the test.
type g struct {
	*rig
	side
	p     *hostsocktest.Peer
	nxt   uint32 // next byte of the guest
	ack   uint32 // next byte expected of us
	wnd   uint16
	ours  uint32 // our ISN
	first seg    // our SYN or SYN-ACK
}

const guestISN = 1000

// dial has the guest connect to a listening target, MSS 1460, window scale 7,
// SACK, window 65535 (8 MiB).
func (r *rig) dial(d side) *g {
	r.t.Helper()
	return r.dialWith(d, seg{mss: 1460, wscale: 7, sackOK: true, wnd: 65535})
}

func (r *rig) dialWith(d side, syn seg) *g {
	r.t.Helper()
	srv := r.k.Serve(d.remote.AddrPort(d.remotePort))
	syn.flags, syn.seq = "S", guestISN
	r.input(r.frame(d, syn))
	r.k.Run()
	out := r.take(d)
	if len(out) != 1 || out[0].flags != "SA" || out[0].ack != guestISN+1 {
		r.t.Fatalf("answer to SYN: %v", out)
	}
	c := &g{rig: r, side: d, p: srv.Accept(), nxt: guestISN + 1, ack: out[0].seq + 1, wnd: syn.wnd, ours: out[0].seq, first: out[0]}
	c.send("A", nil)
	if out := r.take(d); len(out) != 0 {
		r.t.Fatalf("answer to the handshake's last ACK: %v", out)
	}
	return c
}

// accept brings a connection from the host to the guest, which takes it.
func (r *rig) accept(d side) *g {
	r.t.Helper()
	c := r.knock(d)
	c.input(r.frame(d, seg{flags: "SA", seq: guestISN, ack: c.ack, wnd: 65535, mss: 1460, wscale: 7, sackOK: true}))
	c.nxt = guestISN + 1
	if out := r.take(d); len(out) != 1 || out[0].flags != "A" || out[0].ack != c.nxt {
		r.t.Fatalf("answer to SYN-ACK: %v", out)
	}
	return c
}

// knock brings a connection from the host as far as our SYN.
func (r *rig) knock(d side) *g {
	r.t.Helper()
	local := netip.MustParseAddrPort("0.0.0.0:8080")
	if !d.guest.Is4() {
		local = netip.MustParseAddrPort("[::]:8080")
	}
	l, errno := r.k.Listen(hostsock.TCP, local, nil)
	if errno != 0 {
		r.t.Fatal(errno)
	}
	client := d.remote.AddrPort(d.remotePort)
	p := r.k.Connect(client, local)
	fd, peer, here, errno := r.k.Accept(l)
	if errno != 0 {
		r.t.Fatal(errno)
	}
	r.k.Close(l, false)
	r.e.Inbound(fd, peer, here, d.guest, d.guestPort, d.remote)
	r.k.Run()
	out := r.take(d)
	if len(out) != 1 || out[0].flags != "S" {
		r.t.Fatalf("inbound: %v", out)
	}
	return &g{rig: r, side: d, p: p, ack: out[0].seq + 1, wnd: 65535, ours: out[0].seq, first: out[0]}
}

// raw sends a segment as it is.
func (c *g) raw(s seg) { c.t.Helper(); c.input(c.frame(c.side, s)) }

// send sends the next segment of the guest, and counts it.
func (c *g) send(flags string, data []byte) {
	c.t.Helper()
	c.raw(seg{flags: flags, seq: c.nxt, ack: c.ack, wnd: c.wnd, data: data})
	c.nxt += uint32(len(data))
	for _, f := range flags {
		if f == 'F' || f == 'S' {
			c.nxt++
		}
	}
}

// want takes what was sent to the guest and compares it.
func (c *g) want(want ...seg) []seg {
	c.t.Helper()
	c.k.Run()
	got := c.take(c.side)
	ok := len(got) == len(want)
	for i := range got {
		if !ok {
			break
		}
		w := want[i]
		ok = got[i].flags == w.flags && got[i].seq == w.seq && got[i].ack == w.ack && bytes.Equal(got[i].data, w.data)
	}
	if !ok {
		c.t.Fatalf("to the guest:\n  got  %v\n  want %v", got, want)
	}
	return got
}

// wantAck expects one plain ACK of everything that the guest has sent.
func (c *g) wantAck() seg {
	c.t.Helper()
	return c.want(seg{flags: "A", seq: c.ack, ack: c.nxt})[0]
}

// quiet expects that nothing was sent to the guest.
func (c *g) quiet() { c.t.Helper(); c.want() }

// recv takes data segments in order, ACKs them, and returns their bytes. It
// follows our FIN.
func (c *g) recv() (data []byte, fin bool) {
	c.t.Helper()
	for range 10000 {
		c.k.Run()
		segs := c.take(c.side)
		if len(segs) == 0 {
			return data, fin
		}
		for _, s := range segs {
			if s.seq != c.ack || len(s.flags) > 0 && s.flags[0] == 'R' {
				c.t.Fatalf("segment %v, expected at %d", s, c.ack)
			}
			data = append(data, s.data...)
			c.ack += uint32(len(s.data))
			if s.flags[0] == 'F' {
				c.ack++
				fin = true
			}
		}
		c.send("A", nil)
	}
	c.t.Fatal("endless")
	return nil, false
}

// bothClose closes from the guest's side and has everything cleaned up.
func (c *g) bothClose() {
	c.t.Helper()
	c.p.CloseWrite()
	c.k.Run()
	c.recv()
	c.send("FA", nil)
	c.k.Run()
	c.take(c.side)
	c.p.ReadAll()
	c.k.Run()
	c.advance(2 * time.Second)
	c.clean()
}

// pattern is n bytes that tell their place.
func pattern(n int, seed byte) []byte {
	b := make([]byte, n)
	x := uint32(seed)*2654435761 + 1
	for i := range b {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		b[i] = byte(x)
	}
	return b
}

// state is that of the engine's connection, Closed when it is gone.
func (c *g) state() State {
	k := flow.Key{Guest: c.guest, Remote: c.remote, GuestPort: c.guestPort, RemotePort: c.remotePort, Proto: 6}
	i, ok := c.flows.Lookup(&k)
	if !ok {
		return Closed
	}
	return c.e.conns.At(c.flows.At(i).Slot).state
}

func (c *g) wantState(s State) {
	c.t.Helper()
	if got := c.state(); got != s {
		c.t.Fatalf("state %v, want %v", got, s)
	}
}
