package e2e

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/netns"
)

// newXDPEnv is a guest with our binary in it, whose frames have full checksums:
// the driver drops others while a program is attached.
func newXDPEnv(t *testing.T) *env {
	t.Helper()
	guestwireOnly(t)
	e := newEnv(t, setup{noGuest: true, args: []string{"--no-csum"}})
	dir := filepath.Join(e.dir, "guest")
	if err := os.MkdirAll(dir, 0o755); err != nil {
		t.Fatal(err)
	}
	var err error
	e.g, err = guest.StartQEMU(guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: shared.vsockInitrds, Dir: dir, Accel: shared.accel,
		Net: guest.VhostUser(e.d.Config.Socket)})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(e.g.Stop)
	e.sh(t, "ip addr add "+backend.Guest4+"/24 dev eth0 && ip link set eth0 up && ip route add default via 10.0.2.2 && ping -c 1 -W 10 10.0.2.2")
	return e
}

// number is a datagram as `agent xdp send` makes them.
func number(size int, seq uint64) []byte {
	b := make([]byte, size)
	for i := range b {
		b[i] = byte(i)
	}
	binary.BigEndian.PutUint64(b, seq)
	return b
}

// TestXDPCopy is what every guest can have: a queue is bound, used and left again
// and again, and every datagram that passes is whole.
func TestXDPCopy(t *testing.T) {
	e := newXDPEnv(t)
	t.Run("probe", func(t *testing.T) {
		var list []struct {
			Name string
			OK   bool
		}
		if err := json.Unmarshal([]byte(e.sh(t, "guestwire agent xdp probe --json")), &list); err != nil {
			t.Fatal(err)
		}
		for _, c := range list {
			missing := c.Name == "access-platform" || c.Name == "ring-reset" || c.Name == "bind-zero-copy"
			if c.OK == missing {
				t.Errorf("%s: %t", c.Name, c.OK)
			}
		}
		if len(list) < 10 {
			t.Errorf("%d conditions", len(list))
		}
	})
	t.Run("send", func(t *testing.T) {
		const rounds, each, size = 20, 25, 300
		u, err := e.w.Peer.ListenUDP(net.JoinHostPort(netns.ServiceV4, "7900"))
		if err != nil {
			t.Fatal(err)
		}
		defer u.Close()
		b := make([]byte, 2048)
		for round := range rounds {
			e.sh(t, fmt.Sprintf("guestwire agent xdp send --by copy --from %s:%d --to %s:7900 --size %d --count %d --rate 5000", backend.Guest4, 4000+round, netns.ServiceV4, size, each))
			for seq := range uint64(each) {
				_ = u.SetReadDeadline(time.Now().Add(10 * time.Second))
				n, err := u.Read(b)
				if err != nil || string(b[:n]) != string(number(size, seq)) {
					t.Fatalf("round %d, datagram %d: %d bytes, %v: %x", round, seq, n, err, b[:min(n, 16)])
				}
			}
		}
	})
	t.Run("receive", func(t *testing.T) {
		for range 5 {
			c, err := e.w.Peer.Dial("udp", fmt.Sprintf("%s:%d", netns.HostV4, forwardPort))
			if err != nil {
				t.Fatal(err)
			}
			e.sh(t, fmt.Sprintf("rm -f /tmp/got /tmp/err; guestwire agent xdp receive --by copy --at %s:7777 --verify --count 100 --time 30s --json >/tmp/got 2>/tmp/err & for i in $(seq 100); do grep -q ready /tmp/err && exit 0; sleep 0.05; done; cat /tmp/err; exit 1", backend.Guest4))
			for seq := range uint64(100) {
				if _, err := c.Write(number(300, seq)); err != nil {
					t.Error(err)
				}
			}
			c.Close()
			out := e.sh(t, "for i in $(seq 300); do grep -q '\"done\":true' /tmp/got && break; sleep 0.1; done; tail -1 /tmp/got")
			if !strings.Contains(out, `"packets":100,`) || !strings.Contains(out, `"bad":0,"lost":0`) {
				t.Errorf("received %s", out)
			}
		}
	})
}
