package e2e

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// vsockCommon is what every guest is checked for.
var vsockCommon = []struct {
	name string
	run  func(*testing.T, *venv)
}{
	{"Bulk", checkVSockBulk},
	{"HalfClose", checkVSockHalfClose},
	{"Refusal", checkVSockRefusal},
	{"SlowReader", checkVSockSlowReader},
	{"Parallel", checkVSockParallel},
	{"Pipelined", checkVSockPipelined},
	{"SeqPacket", checkVSockSeqPacket},
}

func runVSockCommon(t *testing.T, s vsetup) {
	e := newVenv(t, s)
	for _, c := range vsockCommon {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

func TestVSockUML(t *testing.T)        { runVSockCommon(t, vsetup{uml: true}) }
func TestVSockQEMU(t *testing.T)       { runVSockCommon(t, vsetup{}) }
func TestVSockNewestQEMU(t *testing.T) { runVSockCommon(t, vsetup{newest: true}) }

// checkVSockBulk moves bytes each way, opened from either side, by writes of 1 byte to 1 MiB, and compares hashes.
func checkVSockBulk(t *testing.T, e *venv) {
	for _, row := range []struct {
		chunk int
		n     int64
	}{{1, 5000}, {100, 200000}, {4096, 4 << 20}, {32768, 8 << 20}, {65536, 16 << 20}, {65537, 8 << 20}, {1 << 20, 16 << 20}} {
		if vsockPeer() && row.chunk > 32768 {
			continue // it hangs
		}
		t.Run(fmt.Sprint(row.chunk), func(t *testing.T) {
			for i, way := range []string{"get", "put"} {
				if vsockPeer() && way == "put" {
					return // it ends with a half-close
				}
				t.Logf("guest's client, %s: %s", way, e.sh(t, 0, fmt.Sprintf("guestprog %s %s %d %d %d", way, toHost, row.n, i, row.chunk)))
			}
			if err := traffic.GetIn(e.toGuest(0), row.n, 3, row.chunk, time.Minute); err != nil {
				t.Errorf("host's client, get: %v", err)
			}
			if err := traffic.PutIn(e.toGuest(0), row.n, 4, row.chunk, time.Minute); err != nil {
				t.Errorf("host's client, put: %v", err)
			}
		})
	}
}

// checkVSockHalfClose: the side that has ended its sending half still receives, whichever side that is. (Put, in Bulk, has the client do it first.)
func checkVSockHalfClose(t *testing.T, e *venv) {
	if vsockPeer() {
		t.Skip("the peer has no half-close")
	}
	e.sh(t, 0, fmt.Sprintf("guestprog half %s 3000000 5 out", toHost))
	if err := traffic.Half(e.toGuest(0), 3000000, 6, "in", 30*time.Second); err != nil {
		t.Error(err)
	}
}

// checkVSockRefusal: where nobody listens a connection is refused, not timed out.
func checkVSockRefusal(t *testing.T, e *venv) {
	if !vsockPeer() {
		e.sh(t, 0, fmt.Sprintf("guestprog refused vsock:%d:9", vsock.Host))
	}
	if _, _, err := vsock.DialGuest(e.d.Path(0), 9, 10*time.Second); !errors.Is(err, io.EOF) {
		t.Errorf("the host's client of a port where no guest listens got %v, want the end of the connection", err)
	}
}

// checkVSockSlowReader: a reader that cannot keep up slows the sender down, and nothing is lost; meanwhile others are served.
func checkVSockSlowReader(t *testing.T, e *venv) {
	chunk := 65536
	if vsockPeer() {
		chunk = 32768
	}
	job, err := e.g[0].Start(time.Minute, fmt.Sprintf("guestprog slow %s 8000000 7", toHost))
	if err != nil {
		t.Fatal(err)
	}
	slow := traffic.Dialer(func() (net.Conn, error) {
		c, err := e.toGuest(0)()
		if err != nil {
			return nil, err
		}
		return pausing{c.(traffic.Conn)}, nil
	})
	done := make(chan error, 1)
	go func() { done <- traffic.GetIn(slow, 8000000, 8, chunk, time.Minute) }()
	for range 5 {
		if err := traffic.GetIn(e.toGuest(0), 100000, 9, chunk, 30*time.Second); err != nil {
			t.Errorf("another connection meanwhile: %v", err)
		}
	}
	if err := <-done; err != nil {
		t.Errorf("slow reader on the host: %v", err)
	}
	if out, exit, err := job.Wait(); err != nil || exit != 0 {
		t.Errorf("slow reader in the guest: exit %d, %v: %s", exit, err, out)
	}
}

// pausing reads at most 64 KiB and pauses before.
type pausing struct{ traffic.Conn }

func (c pausing) Read(b []byte) (int, error) {
	time.Sleep(20 * time.Millisecond)
	return c.Conn.Read(b[:min(len(b), 64<<10)])
}

func checkVSockParallel(t *testing.T, e *venv) {
	e.sh(t, 0, fmt.Sprintf("guestprog parallel %s 200 4096", toHost))
	if err := traffic.Parallel(e.toGuest(0), 200, 4096, time.Minute); err != nil {
		t.Errorf("inbound: %v", err)
	}
}

// checkVSockPipelined: what a client sends behind its CONNECT line belongs to the stream, in whatever pieces both come.
func checkVSockPipelined(t *testing.T, e *venv) {
	if vsockPeer() {
		t.Skip("the peer loses it")
	}
	for _, pieces := range [][]string{
		{fmt.Sprintf("CONNECT %d\necho\nhello\n", guestPort)},
		{"CONN", fmt.Sprintf("ECT %d", guestPort), "\necho", "\nhello\n"},
	} {
		c, err := net.Dial("unix", e.d.Path(0))
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		for _, p := range pieces {
			if _, err := io.WriteString(c, p); err != nil {
				t.Fatal(err)
			}
			time.Sleep(5 * time.Millisecond) // so that they are likely to arrive apart; either way is right
		}
		if _, err := vsock.ReadOK(c); err != nil {
			t.Fatalf("%q: %v", pieces, err)
		}
		got := make([]byte, len("hello\n"))
		if _, err := io.ReadFull(c, got); err != nil || string(got) != "hello\n" {
			t.Errorf("%q: echoed %q, %v", pieces, got, err)
		}
	}
}

// checkVSockSeqPacket: messages stay whole and apart, both ways, opened from either side.
func checkVSockSeqPacket(t *testing.T, e *venv) {
	if vsockPeer() {
		t.Skip("the peer has no SEQPACKET")
	}
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: fmt.Sprintf("%s_%d", e.d.Path(0), hostPort+1), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var messages atomic.Int64
	go echoPackets(l, &messages)
	e.sh(t, 0, fmt.Sprintf("guestprog seqpacket %d %d", vsock.Host, hostPort+1))
	if n := messages.Load(); n != 18 {
		t.Errorf("the host has seen %d messages, want 18", n)
	}
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: e.d.Path(0) + "_seqpacket", Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(30 * time.Second))
	if _, err := fmt.Fprintf(c, "CONNECT %d\n", guestPort+1); err != nil {
		t.Fatal(err)
	}
	b := make([]byte, 1<<20)
	if n, err := c.Read(b); err != nil || !strings.HasPrefix(string(b[:n]), "OK ") {
		t.Fatalf("the answer to CONNECT: %q, %v", b[:max(n, 0)], err)
	}
	for _, size := range []int{1, 3731, 3732, 3733, 65536, 150000} {
		sent := bytes.Repeat([]byte{byte(size), byte(size >> 8), 7}, size/3+1)[:size]
		if _, err := c.Write(sent); err != nil {
			t.Fatalf("send %d bytes: %v", size, err)
		}
		if n, err := c.Read(b); err != nil || !bytes.Equal(b[:max(n, 0)], sent) {
			t.Fatalf("the echo of a message of %d bytes has %d, %v", size, n, err)
		}
	}
}

func echoPackets(l *net.UnixListener, count *atomic.Int64) {
	c, err := l.AcceptUnix()
	if err != nil {
		return
	}
	defer c.Close()
	for b := make([]byte, 1<<20); ; {
		n, err := c.Read(b)
		if err != nil || n == 0 {
			return
		}
		count.Add(1)
		if _, err := c.Write(b[:n]); err != nil {
			return
		}
	}
}

// Thousands of connections come and go, from both sides and given up half-way: the daemon has as many descriptors as before.
func TestVSockChurn(t *testing.T) {
	e := newVenv(t, vsetup{uml: true})
	fds := func() int {
		n, err := e.d.FDs()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	e.sh(t, 0, fmt.Sprintf("guestprog churn %s 10", toHost))
	if _, err := traffic.Churn(e.toGuest(0), 10, time.Minute); err != nil {
		t.Fatal(err)
	}
	before := fds()
	out := e.shFor(t, 0, 2*time.Minute, fmt.Sprintf("guestprog churn %s 3000", toHost))
	t.Logf("3000 from the guest: %s us", out)
	took, err := traffic.Churn(e.toGuest(0), 3000, time.Minute)
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("3000 from the host: %v", took)
	for i := range 300 { // given up before the line, in it, and behind it
		c, err := net.Dial("unix", e.d.Path(0))
		if err != nil {
			t.Fatal(err)
		}
		line := fmt.Sprintf("CONNECT %d\n", guestPort)
		_, _ = io.WriteString(c, []string{"", line[:8], line}[i%3])
		c.Close()
	}
	for end := time.Now().Add(20 * time.Second); fds() > before; time.Sleep(50 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("%d descriptors before, %d after", before, fds())
		}
	}
	if err := traffic.Get(e.toGuest(0), 100000, 1, 30*time.Second); err != nil {
		t.Error(err)
	}
}

// A guest that reboots has no connections: those of its former life end, and those of the next work.
func testVSockReboot(t *testing.T, s vsetup) {
	e := newVenv(t, s)
	for i := range 2 {
		key := fmt.Sprint("life-", i)
		if _, err := e.g[0].Start(time.Minute, fmt.Sprintf("guestprog ask %s hold %s", toHost, key)); err != nil {
			t.Fatal(err)
		}
		c, err := e.toGuest(0)()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		time.Sleep(300 * time.Millisecond) // the guest's connection is up by then; if it is not, there is less to see
		if err := e.g[0].Reboot(); err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("the host's connection to the guest's former life: %d, %v, want its end", n, err)
		}
		if got := e.srv.Result(key, 20*time.Second); got != "reset" && got != "eof" {
			t.Errorf("the guest's connection of its former life: %q, want its end", got)
		}
		e.startServer(0)
		e.sh(t, 0, fmt.Sprintf("guestprog put %s 3000000 1 && guestprog get %s 3000000 2", toHost, toHost))
		if err := traffic.Get(e.toGuest(0), 3000000, 3, 30*time.Second); err != nil {
			t.Error(err)
		}
	}
}

func isTimeout(err error) bool {
	var n net.Error
	return errors.As(err, &n) && n.Timeout()
}

func TestVSockUMLReboot(t *testing.T)  { testVSockReboot(t, vsetup{uml: true}) }
func TestVSockQEMUReboot(t *testing.T) { testVSockReboot(t, vsetup{}) }

// The tools that people use inside guests.
func TestVSockTools(t *testing.T) {
	e := newVenv(t, vsetup{})
	t.Run("socat", func(t *testing.T) {
		if got := e.sh(t, 0, fmt.Sprintf("printf 'echo\\nhello\\n' | socat -t 5 - VSOCK-CONNECT:%d:%d", vsock.Host, hostPort)); got != "hello" {
			t.Errorf("%q", got)
		}
		e.listen(t, "socat VSOCK-LISTEN:7800,fork EXEC:cat", 7800)
	})
	t.Run("ncat", func(t *testing.T) {
		if got := e.sh(t, 0, fmt.Sprintf("(printf 'echo\\nhello\\n'; sleep 1) | ncat --vsock %d %d", vsock.Host, hostPort)); got != "hello" {
			t.Errorf("%q", got)
		}
		e.listen(t, "ncat --vsock -l 3 7801 -k -e /bin/cat", 7801)
	})
	t.Run("vsock_perf", func(t *testing.T) {
		l, err := net.Listen("unix", fmt.Sprintf("%s_%d", e.d.Path(0), 1234))
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		got := make(chan int64, 1)
		go func() {
			c, err := l.Accept()
			if err != nil {
				return
			}
			n, _ := io.Copy(io.Discard, c)
			got <- n
		}()
		size := "64K"
		if vsockPeer() {
			size = "32K"
		}
		t.Log(e.sh(t, 0, fmt.Sprintf("vsock_perf --sender %d --port 1234 --bytes 64M --buf-size %s | grep performance", vsock.Host, size)))
		select {
		case n := <-got:
			if n != 64<<20 {
				t.Errorf("%d bytes arrived, want %d", n, 64<<20)
			}
		case <-time.After(20 * time.Second):
			t.Error("the end has not arrived")
		}
	})
}

// listen starts a server in the guest that returns what it gets, and asks it from the host.
func (e *venv) listen(t *testing.T, command string, port uint32) {
	t.Helper()
	e.sh(t, 0, "setsid "+command+" >/tmp/listen.log 2>&1 &")
	for end := time.Now().Add(10 * time.Second); ; time.Sleep(200 * time.Millisecond) {
		c, _, err := vsock.DialGuest(e.d.Path(0), port, guest.CommandTimeout)
		if err != nil && time.Now().Before(end) { // it does not listen yet
			continue
		}
		if err != nil {
			t.Fatalf("%s: %v: %s", command, err, e.sh(t, 0, "cat /tmp/listen.log"))
		}
		defer c.Close()
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		sent := bytes.Repeat([]byte("hello"), 20000)
		go func() { _, _ = c.Write(sent) }()
		got := make([]byte, len(sent))
		if _, err := io.ReadFull(c, got); err != nil || !bytes.Equal(got, sent) {
			t.Errorf("%s: the echo differs, %v", command, err)
		}
		return
	}
}

// The daemon is restarted under a running guest. QEMU opens a vsock backend's socket once in a device's life, so the device is unplugged and plugged in
// again, into the same guest.
func TestVSockBackendRestart(t *testing.T) {
	e := newVenv(t, vsetup{hotplug: true})
	for round := range 2 {
		e.sh(t, 0, fmt.Sprintf("guestprog put %s 3000000 1", toHost))
		c, err := e.toGuest(0)()
		if err != nil {
			t.Fatal(err)
		}
		defer c.Close()
		if err := e.d.Restart(); err != nil {
			t.Fatal(err)
		}
		_ = c.SetDeadline(time.Now().Add(20 * time.Second))
		if n, err := c.Read(make([]byte, 1)); err == nil || isTimeout(err) {
			t.Errorf("round %d: a connection through the daemon that ended: %d, %v, want its end", round, n, err)
		}
		e.replug(t) // the guest's listeners survive it
		e.sh(t, 0, fmt.Sprintf("guestprog put %s 3000000 1 && guestprog get %s 3000000 2", toHost, toHost))
		if err := traffic.Get(e.toGuest(0), 3000000, 3, 30*time.Second); err != nil {
			t.Error(err)
		}
	}
}

// replug takes the vsock device out of guest 0 and puts in one that is connected anew.
func (e *venv) replug(t *testing.T) {
	t.Helper()
	q := e.g[0].QMP
	do := func(command string, args map[string]any) {
		t.Helper()
		if _, err := q.Do(command, args); err != nil {
			t.Fatal(err)
		}
	}
	do("device_del", map[string]any{"id": "vsock0"})
	for end := time.Now().Add(20 * time.Second); ; time.Sleep(50 * time.Millisecond) { // the device holds it until the guest has let go
		if _, err := q.Do("chardev-remove", map[string]any{"id": "vsock0"}); err == nil {
			break
		} else if time.Now().After(end) {
			t.Fatal(err)
		}
	}
	do("chardev-add", map[string]any{"id": "vsock0", "backend": map[string]any{"type": "socket", "data": map[string]any{
		"addr": map[string]any{"type": "unix", "data": map[string]any{"path": e.d.Socket(0)}}, "server": false}}})
	do("device_add", map[string]any{"driver": "vhost-user-vsock-pci", "chardev": "vsock0", "id": "vsock0", "bus": "slot0", "vectors": 0})
	e.sh(t, 0, "for i in $(seq 100); do ls /sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio* >/dev/null 2>&1 && exit 0; sleep 0.1; done; dmesg | tail; exit 1")
}
