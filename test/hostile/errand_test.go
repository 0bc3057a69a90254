package hostile

import (
	"fmt"
	"io"
	"net"
	"net/netip"
	"strings"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
)

// errands are a round of everything that makes the worker call its host: TCP and
// UDP out, a DNS question, TCP and UDP in by forwards. Each round takes ports of
// its own. Without a fault all of it works; with one, parts may fail, but soon.
type errands struct {
	t    *testing.T
	d    *daemon
	g    *guest
	host *sick

	tcp      *net.TCPListener
	udp, dns *net.UDPConn
	inTCP    uint16 // forwards
	inUDP    uint16
	sport    uint16
	fds      int // at the start
}

func startErrands(t *testing.T) *errands {
	t.Helper()
	e := &errands{t: t, host: &sick{}, sport: 2000}
	e.tcp = listen(t).l
	go func() {
		for {
			c, err := e.tcp.Accept()
			if err != nil {
				return
			}
			go func() {
				defer c.Close()
				// Not TCPConn's own ReadFrom, which keeps pipes for splice(2).
				_, _ = io.Copy(struct{ io.Writer }{c}, struct{ io.Reader }{c})
			}()
		}
	}()
	answer := func(change func([]byte)) *net.UDPConn {
		c, err := net.ListenUDP("udp4", &net.UDPAddr{IP: net.IP{127, 0, 0, 1}})
		must(t, err)
		t.Cleanup(func() { c.Close() })
		go func() {
			b := make([]byte, 2048)
			for {
				n, from, err := c.ReadFromUDP(b)
				if err != nil {
					return
				}
				change(b[:n])
				_, _ = c.WriteToUDP(b[:n], from)
			}
		}()
		return c
	}
	e.udp = answer(func([]byte) {})
	e.dns = answer(func(b []byte) { b[2] |= 0x80 }) // QR: a response
	e.host.arm(0, 0)
	e.d = startOn(t, func(o *configOptions) {
		o.TCPPorts, o.UDPPorts = []string{"127.0.0.1/0:7000"}, []string{"127.0.0.1/0:7001"}
		o.DNSHost = []string{e.dns.LocalAddr().String()}
	}, e.host.on)
	for _, f := range strings.Split(strings.TrimPrefix(e.d.w.Forwards(), "; forwards "), ", ") {
		var proto, local string
		_, _ = fmt.Sscanf(f, "%s %s ->", &proto, &local)
		at, err := netip.ParseAddrPort(local)
		must(t, err)
		if proto == "tcp" {
			e.inTCP = at.Port()
		} else {
			e.inUDP = at.Port()
		}
	}
	e.g = e.d.guest()
	e.fds = descriptors(t)
	return e
}

// want waits for a frame that fits. It gives up at once at a reset, and soon when
// a fault has been played.
func (e *errands) want(fits func([]byte) bool) bool {
	begin := time.Now()
	for {
		reset := false
		for _, f := range e.g.receive() {
			if fits(f) {
				return true
			}
			s := segment(f, e.sport)
			reset = reset || s != nil && s.RST
		}
		patience := 4 * time.Second
		if e.host.failed() != "" {
			patience = 4 * time.Millisecond
		}
		if reset || time.Since(begin) > patience {
			return false
		}
		time.Sleep(50 * time.Microsecond)
	}
}

func (e *errands) wantSegment(port uint16, fits func(*layers.TCP) bool) (s *layers.TCP) {
	if e.want(func(f []byte) bool { s = segment(f, port); return s != nil && fits(s) }) {
		return s
	}
	return nil
}

// run does all errands and names those that failed.
func (e *errands) run() (failed []string) {
	e.sport++
	for _, x := range []struct {
		name string
		do   func() bool
	}{{"TCP out", e.tcpOut}, {"UDP out", e.udpOut}, {"DNS", e.question}, {"TCP in", e.tcpIn}, {"UDP in", e.udpIn}} {
		if !x.do() {
			failed = append(failed, x.name)
		}
	}
	return failed
}

func (e *errands) tcpOut() bool {
	c := &conn{g: e.g, to: gateway, sport: e.sport, dport: uint16(e.tcp.Addr().(*net.TCPAddr).Port), seq: 1000}
	c.segment("", func(s *layers.TCP) { s.SYN = true })
	sa := e.wantSegment(c.sport, func(s *layers.TCP) bool { return s.SYN && s.ACK })
	if sa == nil {
		return false
	}
	c.seq, c.ack = 1001, sa.Seq+1
	if e.exchange(c) {
		c.segment("", func(s *layers.TCP) { s.FIN = true })
		c.seq++
		if fin := e.wantSegment(c.sport, func(s *layers.TCP) bool { return s.FIN }); fin != nil {
			c.ack = fin.Seq + 1
			c.segment("", func(*layers.TCP) {})
			return true
		}
	}
	c.segment("", func(s *layers.TCP) { s.RST = true })
	return false
}

// exchange sends a line and waits for it to come back.
func (e *errands) exchange(c *conn) bool {
	line := fmt.Sprintf("errand %d", e.sport)
	c.send(line)
	back := e.wantSegment(c.sport, func(s *layers.TCP) bool { return s.Seq == c.ack && string(s.Payload) == line })
	if back == nil {
		return false
	}
	c.ack += uint32(len(line))
	c.segment("", func(*layers.TCP) {})
	return true
}

// datagram returns the UDP payload of a frame between two ports, nil otherwise.
func datagram(f []byte, from, to uint16) []byte {
	u, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeUDP).(*layers.UDP)
	if !ok || from != 0 && uint16(u.SrcPort) != from || uint16(u.DstPort) != to {
		return nil
	}
	return u.Payload
}

func (e *errands) udpOut() bool {
	port := uint16(e.udp.LocalAddr().(*net.UDPAddr).Port)
	e.g.send(udpFrom(e.t, guestIP, e.sport, gateway, port, []byte("echo")))
	return e.want(func(f []byte) bool { return string(datagram(f, port, e.sport)) == "echo" })
}

func (e *errands) question() bool {
	q := []byte{byte(e.sport >> 8), byte(e.sport), 1, 0, 0, 1, 0, 0, 0, 0, 0, 0, 1, 'x', 4, 't', 'e', 's', 't', 0, 0, 1, 0, 1}
	e.g.send(udpFrom(e.t, guestIP, e.sport, net.IP{10, 0, 2, 3}, 53, q))
	return e.want(func(f []byte) bool {
		b := datagram(f, 53, e.sport)
		return len(b) > 3 && b[0] == q[0] && b[1] == q[1] && b[3]&15 == 0
	})
}

func (e *errands) tcpIn() bool {
	h, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", e.inTCP), time.Second)
	if err != nil {
		return false
	}
	defer h.Close()
	if _, err := h.Write([]byte("hello inside")); err != nil {
		return false
	}
	from := uint16(h.LocalAddr().(*net.TCPAddr).Port)
	syn := e.wantSegment(7000, func(s *layers.TCP) bool { return s.SYN && uint16(s.SrcPort) == from })
	if syn == nil {
		return false
	}
	c := &conn{g: e.g, to: gateway, sport: 7000, dport: from, seq: 500, ack: syn.Seq + 1}
	c.segment("", func(s *layers.TCP) { s.SYN = true })
	c.seq++
	got := e.wantSegment(7000, func(s *layers.TCP) bool { return s.Seq == c.ack && string(s.Payload) == "hello inside" })
	if got != nil {
		c.ack += uint32(len(got.Payload))
		c.send("hello outside")
		_ = h.SetReadDeadline(time.Now().Add(e.patience()))
		b := make([]byte, 13)
		if _, err := io.ReadFull(h, b); err != nil || string(b) != "hello outside" {
			got = nil
		}
	}
	c.segment("", func(s *layers.TCP) { s.RST = true })
	return got != nil
}

func (e *errands) udpIn() bool {
	h, err := net.Dial("udp", fmt.Sprintf("127.0.0.1:%d", e.inUDP))
	must(e.t, err)
	defer h.Close()
	_, _ = h.Write([]byte("knock"))
	from := uint16(h.LocalAddr().(*net.UDPAddr).Port)
	if !e.want(func(f []byte) bool { return string(datagram(f, from, 7001)) == "knock" }) {
		return false
	}
	e.g.send(udpFrom(e.t, guestIP, 7001, gateway, from, []byte("who?")))
	_ = h.SetReadDeadline(time.Now().Add(e.patience()))
	b := make([]byte, 8)
	n, err := h.Read(b)
	return err == nil && string(b[:n]) == "who?"
}

func (e *errands) patience() time.Duration {
	if e.host.failed() != "" {
		return 4 * time.Millisecond
	}
	return 4 * time.Second
}
