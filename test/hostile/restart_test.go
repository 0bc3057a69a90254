package hostile

import (
	"bytes"
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"

	"guestwire/vring/vhostuser"
)

// reboot: however a guest starts anew, the flows of the one before end with a
// reset towards the host, and what was learned of it is forgotten. Forwards
// listen on, counters go on, and the new guest is served.
func reboot(t *testing.T) {
	const negotiated = features | vhostuser.VhostUserFProtocolFeatures
	for _, tt := range []struct {
		name   string
		reboot func(t *testing.T, g *guest)
	}{
		{"RESET_DEVICE", func(t *testing.T, g *guest) {
			must(t, g.f.ResetDevice())
			must(t, g.f.SetFeatures(negotiated))
		}},
		{"status 0", func(t *testing.T, g *guest) {
			must(t, g.f.SetStatus(0))
			must(t, g.f.SetFeatures(negotiated))
		}},
		{"rings set up anew", func(t *testing.T, g *guest) {
			for i := range g.rings {
				_, err := g.f.GetVringBase(i)
				must(t, err)
			}
		}},
		{"other features", func(t *testing.T, g *guest) {
			for i := range g.rings {
				_, err := g.f.GetVringBase(i)
				must(t, err)
			}
			must(t, g.f.SetFeatures(negotiated&^vhostuser.NetFHostTSO6))
		}},
		{"disconnect", func(t *testing.T, g *guest) {
			g.leave()
			g.meet(g.d, features)
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d := start(t, func(o *configOptions) { o.TCPPorts = []string{"127.0.0.1/0:7000"} })
			srv := listen(t)
			g := d.guest()
			c := g.connect(srv, 4001)
			p := srv.accept()
			c.alive(p)
			g.send(udp(t, guestIP, world, 53, []byte("a flow")))
			d.counts("udp_flows", 1)
			before, ports := d.counters(), d.forwards()

			tt.reboot(t, g)
			g.boot(ringSize, rxBuffer)
			p.wantReset()
			g.pingAs(net.HardwareAddr{0x52, 0x54, 0, 0x99, 0x99, 0x99})
			now := d.counters()
			if now["flows"] > 1 { // the ping may be one
				t.Errorf("%d flows are left", now["flows"])
			}
			for _, name := range []string{"net_tx_frames", "net_rx_frames", "tcp_opened"} {
				if now[name] < before[name] {
					t.Errorf("%s was %d before the reboot and is %d", name, before[name], now[name])
				}
			}
			if got := d.forwards(); fmt.Sprint(got) != fmt.Sprint(ports) || len(got) != 1 {
				t.Fatalf("forwards on %v before, on %v now", ports, got)
			}
			go func() {
				if c, err := net.DialTimeout("tcp", fmt.Sprintf("127.0.0.1:%d", ports[0]), 4*time.Second); err == nil {
					c.Close()
				}
			}()
			g.awaitSegment("a connection by the forward", 7000, func(s *layers.TCP) bool { return s.SYN })
			g.leave()
			d.healthy()
		})
	}
}

// pingAs is ping from another MAC address.
func (g *guest) pingAs(mac net.HardwareAddr) {
	g.t.Helper()
	echo := &layers.ICMPv4{TypeCode: layers.CreateICMPv4TypeCode(layers.ICMPv4TypeEchoRequest, 0), Id: 9999, Seq: 1}
	f := frame(g.t, layers.EthernetTypeIPv4, ip4(layers.IPProtocolICMPv4, guestIP, gateway), echo, gopacket.Payload("who am I?"))
	copy(f[6:12], mac)
	g.send(f)
	g.await("an echo reply to the new guest", func(f []byte) bool {
		l, ok := gopacket.NewPacket(f, layers.LayerTypeEthernet, gopacket.Default).Layer(layers.LayerTypeICMPv4).(*layers.ICMPv4)
		return ok && l.Id == 9999 && bytes.Equal(f[:6], mac)
	})
}

// backendRestart: a worker ends and another takes its place at the same socket,
// with the guest's rings as the first left them. The frontend may give any base;
// chains that were taken and never returned come back all the same. Segments of
// flows that the new worker knows nothing of are answered with RST, so that the
// guest recovers at once.
func backendRestart(t *testing.T) {
	for _, tt := range []struct {
		name string
		base func(used, avail uint16) uint16
	}{
		{"base is the used index", func(used, _ uint16) uint16 { return used }},
		{"3 chains were taken and not returned", func(used, _ uint16) uint16 { return used + 3 }},
		{"all chains were taken", func(_, avail uint16) uint16 { return avail }},
		{"base is nonsense", func(used, _ uint16) uint16 { return used - 1000 }},
		{"base is 0", func(_, _ uint16) uint16 { return 0 }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "s")
			at := func(o *configOptions) { o.SocketPath = path }
			first := start(t, at)
			srv := listen(t)
			g := first.guest()
			c := g.connect(srv, 4001)
			p := srv.accept()
			c.alive(p)
			first.eventually("the ring to rest", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
			g.receive()
			first.stop()
			p.wantReset()
			g.leave()
			for range 5 { // while nobody serves the ring
				c.segment("data of an old flow", func(s *layers.TCP) { s.PSH = true })
			}

			second := start(t, at)
			g.meet(second, features)
			for i, drv := range []int{g.rx.Kick.FD, g.tx.Kick.FD} {
				r := g.rings[i]
				g.base[i] = tt.base(r.UsedIdx(), r.AvailIdx())
				must(t, g.startRing(i, drv))
			}
			rst := g.awaitSegment("a reset", 4001, isRST)
			if rst.Seq != c.ack { // RFC 9293, 3.10.7.1: SEG.ACK
				t.Errorf("RST with sequence number %d, want %d", rst.Seq, c.ack)
			}
			second.eventually("all chains to come back", func() bool { return g.rings[1].UsedIdx() == g.rings[1].AvailIdx() })
			for range 2 * ringSize { // every buffer of both rings is in use
				g.ping()
			}
			c2 := g.connect(srv, 4002)
			c2.alive(srv.accept())
			g.leave()
			second.healthy()
		})
	}
}
