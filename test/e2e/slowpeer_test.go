package e2e

import (
	"fmt"
	"io"
	"net"
	"testing"
	"time"

	"guestwire/test/harness/netns"
)

// An upload that the host takes slower than the guest sends it must be slowed down by the window, not by losses: nothing that arrives inside the window is
// dropped, and the guest's TCP never times out. This is what costs other translators a factor of 100.
func TestUMLUploadIsNeverDropped(t *testing.T) {
	e := newEnv(t, setup{uml: true})
	e.sh(t, "udhcpc -i eth0 -n -q -t 10 -T 1")
	for _, tt := range []struct {
		name  string
		wmem  string        // of the daemon's sockets
		pause time.Duration // of the peer behind every 64 KiB
		bytes int
	}{
		{"SlowPeer", "4096 16384 4194304", 10 * time.Millisecond, 24 << 20},
		{"SmallSendBuffer", "4096 16384 65536", 0, 256 << 20},
	} {
		t.Run(tt.name, func(t *testing.T) {
			if err := e.w.Host.Sysctl("ipv4/tcp_wmem", tt.wmem); err != nil {
				t.Fatal(err)
			}
			l, err := e.w.Peer.Listen("tcp", net.JoinHostPort(netns.ServiceV4, "7800"))
			if err != nil {
				t.Fatal(err)
			}
			defer l.Close()
			got := make(chan int, 1)
			go func() {
				c, err := l.Accept()
				if err != nil {
					got <- -1
					return
				}
				defer c.Close()
				buf, n := make([]byte, 64<<10), 0
				for {
					k, err := io.ReadFull(c, buf)
					n += k
					if err != nil {
						got <- n
						return
					}
					time.Sleep(tt.pause)
				}
			}()
			timeouts := func() string {
				return e.sh(t, `awk '/^TcpExt:/ {if (!n) {n=split($0, name)} else {split($0, value); for (i=2;i<=n;i++) if (name[i]=="TCPTimeouts" || name[i]=="TCPLostRetransmit") print name[i], value[i]}}' /proc/net/netstat`)
			}
			before := timeouts()
			begin := time.Now()
			e.shFor(t, 90*time.Second, fmt.Sprintf("head -c %d /dev/zero | socat -u - TCP:%s:7800", tt.bytes, netns.ServiceV4))
			select {
			case n := <-got:
				if n != tt.bytes {
					t.Errorf("%d bytes arrived, want %d", n, tt.bytes)
				}
			case <-time.After(60 * time.Second):
				t.Fatal("the peer has not seen the end")
			}
			t.Logf("%.1f MB/s", float64(tt.bytes)/time.Since(begin).Seconds()/1e6)
			if after := timeouts(); after != before {
				t.Errorf("the guest's TCP timed out:\nbefore %s\nafter %s", before, after)
			}
			stats, err := e.d.Stats()
			if err != nil {
				t.Fatal(err)
			}
			for name, v := range stats {
				if (name == "tcp_drop_in-window" || name == "tcp_drop_window") && v != 0 {
					t.Errorf("%s is %d", name, v)
				}
			}
			t.Logf("short writes %d, staged %d bytes", stats["tcp_short_writes"], stats["tcp_bytes_staged"])
		})
	}
}
