package e2e

import (
	"fmt"
	"net"
	"path/filepath"
	"testing"
	"time"

	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
)

// bridge starts `guestwire bridge` in the guest and waits until it is ready.
func (e *venv) bridge(t *testing.T, from, to string) {
	t.Helper()
	log := "/tmp/" + dirName(from) + ".log"
	e.sh(t, 0, fmt.Sprintf("setsid guestwire bridge '%s' '%s' >%s 2>&1 & for i in $(seq 100); do grep -q ready %s && exit 0; sleep 0.05; done; cat %s; exit 1", from, to, log, log, log))
}

// The traffic of the other tests through bridges: hashes, half-close by either side, many at once and one after another.
func TestBridgeTraffic(t *testing.T) {
	e := newVenv(t, vsetup{uml: true})
	e.sh(t, 0, "modprobe vsock_loopback")
	t.Run("kernel", func(t *testing.T) { // client -> TCP -> bridge -> vsock -> bridge -> UNIX -> bridge -> vsock -> server
		e.bridge(t, "unix-listen:/tmp/a.sock", fmt.Sprintf("vsock-connect:1:%d", guestPort))
		e.bridge(t, "vsock-listen:9000", "unix-connect:/tmp/a.sock")
		e.bridge(t, "tcp-listen:127.0.0.1:8000", "vsock-connect:1:9000")
		for _, a := range []string{"unix:/tmp/a.sock", "vsock:1:9000", "127.0.0.1:8000"} {
			for _, chunk := range []int{100, 65536, 1 << 20} {
				n := min(8<<20, chunk*1000)
				e.sh(t, 0, fmt.Sprintf("guestprog put %s %d 1 %d && guestprog get %s %d 2 %d", a, n, chunk, a, n, chunk))
			}
			e.sh(t, 0, fmt.Sprintf("guestprog half %s 300000 3 %s && guestprog parallel %s 50 4096 && guestprog churn %s 50", a, dirName(a), a, a))
		}
	})
	t.Run("messages", func(t *testing.T) {
		e.bridge(t, "unix-listen:/tmp/s.sock,type=seqpacket", fmt.Sprintf("vsock-connect:1:%d,type=seqpacket", guestPort+1))
		e.bridge(t, "vsock-listen:9100,type=seqpacket", "unix-connect:/tmp/s.sock,type=seqpacket")
		e.sh(t, 0, "guestprog seqpacket 1 9100")
	})
	t.Run("hybrid", func(t *testing.T) {
		front := filepath.Join(e.dir, "front")
		p, err := spawn.Start(spawn.Options{}, shared.guestwire, "bridge", "unix-listen:"+front, fmt.Sprintf("uds:%s:%d", e.d.Path(0), guestPort))
		if err != nil {
			t.Fatal(err)
		}
		defer p.Kill()
		if err := p.WaitOutput("ready", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		d := traffic.Dialer(func() (net.Conn, error) { return net.Dial("unix", front) })
		for name, err := range map[string]error{
			"put": traffic.Put(d, 8<<20, 1, time.Minute), "get": traffic.Get(d, 8<<20, 2, time.Minute),
			"half": traffic.Half(d, 300000, 3, "front", time.Minute), "parallel": traffic.Parallel(d, 50, 4096, time.Minute),
		} {
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
	})
}
