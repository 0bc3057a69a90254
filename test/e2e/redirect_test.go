package e2e

import (
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// What `guestwire agent redirect` promises, in a real guest.
func TestRedirect(t *testing.T) {
	e := newVenv(t, vsetup{})
	for _, c := range []struct {
		name string
		run  func(*testing.T, *venv)
	}{
		{"Streams", checkRedirectStreams},
		{"ToGuest", checkRedirectToGuest},
		{"Raw", checkRedirectRaw},
		{"Framed", checkRedirectFramed},
		{"Messages", checkRedirectMessages},
		{"Closing", checkRedirectClosing},
		{"Killed", checkRedirectKilled},
		{"HostRestarts", checkRedirectHostRestarts},
		{"NeverReads", checkRedirectNeverReads},
		{"Many", checkRedirectMany},
		{"Fallback", checkRedirectFallback},
	} {
		t.Run(c.name, func(t *testing.T) { c.run(t, e) })
	}
}

// TestRedirectStable: the same on the kernel that Debian's stable release has (6.12).
func TestRedirectStable(t *testing.T) {
	e := newVenv(t, vsetup{stable: true})
	if release := e.sh(t, 0, "uname -r"); !strings.HasPrefix(release, "6.12.") {
		t.Errorf("the kernel is %s", release)
	}
	e.brief = true
	t.Run("Streams", func(t *testing.T) { checkRedirectStreams(t, e) })
	t.Run("ToGuest", func(t *testing.T) { checkRedirectToGuest(t, e) })
	t.Run("Raw", func(t *testing.T) { checkRedirectRaw(t, e) })
	t.Run("Framed", func(t *testing.T) { checkRedirectFramed(t, e) })
	t.Run("Messages", func(t *testing.T) { checkRedirectMessages(t, e) })
	t.Run("Closing", func(t *testing.T) { checkRedirectClosing(t, e) })
	t.Run("Killed", func(t *testing.T) { checkRedirectKilled(t, e) })
}

// checkRedirectStreams: a guest's clients of a UNIX socket, by every path.
func checkRedirectStreams(t *testing.T, e *venv) {
	for _, path := range []string{"auto", "sockmap", "splice", "copy"} {
		t.Run(path, func(t *testing.T) {
			r := e.redirect(t, "s-"+path, fmt.Sprintf("unix:/tmp/s-%s.sock=vsock:2:%d,path=%s", path, hostPort, path))
			to := fmt.Sprintf("unix:/tmp/s-%s.sock", path)
			chunks, most := []int{1, 700, 4096, 65536, 100000, 1 << 20}, 4<<20
			if e.brief || path == "auto" || path == "copy" {
				chunks, most = []int{700, 100000}, 2<<20
			}
			for i, chunk := range chunks {
				n := min(most, chunk*5000)
				e.sh(t, 0, fmt.Sprintf("guestprog put %s %d %d %d && guestprog get %s %d %d %d", to, n, i, chunk, to, n, i+100, chunk))
			}
			e.sh(t, 0, fmt.Sprintf("guestprog half %s 3000000 5 redirect-%s && guestprog slow %s 2000000 6", to, path, to))
			e.sh(t, 0, fmt.Sprintf("guestprog parallel %s 50 20000 && guestprog churn %s 50", to, to))
			if path == "sockmap" {
				r.moved(t)
			}
		})
	}
}

// moved checks that the kernel has moved bytes, all in order.
func (r *redirector) moved(t *testing.T) {
	t.Helper()
	if n, torn := r.count(t, "sockmap_bytes_redirected"), r.count(t, "sockmap_torn"); n == 0 || torn != 0 {
		t.Errorf("the kernel has moved %d bytes, %d times torn", n, torn)
	}
}

// checkRedirectToGuest: the host's clients of a port of the guest, which leads to a UNIX socket, whose server is the host again; and to a TCP service.
func checkRedirectToGuest(t *testing.T, e *venv) {
	e.sh(t, 0, "setsid guestprog serve 7070 >/tmp/tcp.log 2>&1 & for i in $(seq 100); do grep -q serving /tmp/tcp.log && exit 0; sleep 0.1; done; exit 1")
	r := e.redirect(t, "g", "vsock:8001=unix:/tmp/back.sock", fmt.Sprintf("unix:/tmp/back.sock=vsock:2:%d", hostPort), "vsock:8002=tcp:127.0.0.1:7070",
		"vsock:8003=unix:/tmp/back.sock,path=sockmap")
	for _, port := range []uint32{8001, 8002, 8003} {
		d := traffic.Dialer(func() (net.Conn, error) {
			c, _, err := vsock.DialGuest(e.d.Path(0), port, 10*time.Second)
			return c, err
		})
		for name, err := range map[string]error{
			"put": traffic.PutIn(d, 8<<20, 1, 50000, time.Minute), "get": traffic.GetIn(d, 8<<20, 2, 50000, time.Minute),
			"half": traffic.Half(d, 3000000, 3, fmt.Sprint("to-guest-", port), time.Minute), "parallel": traffic.Parallel(d, 50, 4096, time.Minute),
		} {
			if err != nil {
				t.Errorf("port %d, %s: %v", port, name, err)
			}
		}
	}
	r.moved(t)
}

// checkRedirectRaw: datagrams become a stream of bytes; sizes are of all kinds, and one sender's stay in order.
func checkRedirectRaw(t *testing.T, e *venv) {
	for _, path := range []string{"auto", "copy"} {
		t.Run(path, func(t *testing.T) {
			var n atomic.Int64
			sums := make(chan string, 4)
			e.port(t, 1234, func(c *net.UnixConn) {
				sum, _ := traffic.Sum(counted{c, &n})
				sums <- sum
			})
			sizes := []int{100, 4096, 65536, 200000}
			if e.brief {
				sizes = []int{200000}
			}
			for i, max := range sizes {
				r := e.redirect(t, fmt.Sprint("raw-", path, i), fmt.Sprintf("unix-dgram:/tmp/raw.sock=vsock:2:1234,raw,path=%s", path))
				n.Store(0)
				size := int64(min(8<<20, max*4000))
				e.sh(t, 0, fmt.Sprintf("guestprog dgrams /tmp/raw.sock %d %d %d", size, i, max))
				await(t, 30*time.Second, "all bytes", func() bool { return n.Load() >= size })
				if path == "auto" && r.count(t, "flows_sockmap") != 1 {
					t.Error("it was not by sockmap")
				}
				r.stop(t, "TERM")
				if sum := <-sums; sum != traffic.SumOf(uint64(i), size) {
					t.Errorf("datagrams of at most %d bytes: got %s, want %s", max, sum, traffic.SumOf(uint64(i), size))
				}
			}
		})
	}
}

// checkRedirectFramed: datagrams arrive at a datagram socket of the host as they were sent, `guestwire bridge` being the host's half.
func checkRedirectFramed(t *testing.T, e *venv) {
	host := filepath.Join(e.dir, "log")
	l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: host, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer os.Remove(host)
	defer l.Close()
	p, err := spawn.Start(spawn.Options{}, shared.guestwire, "bridge", fmt.Sprintf("unix-listen:%s_1235,frame", e.d.Path(0)), "unix-connect:"+host+",type=dgram")
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	if err := p.WaitOutput("ready", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	e.redirect(t, "framed", "unix-dgram:/tmp/framed.sock=vsock:2:1235", "vsock:8004=unix-dgram:/tmp/framed.sock")
	// From the guest's socket, and to it: the second leads into the first.
	to, err := spawn.Start(spawn.Options{}, shared.guestwire, "bridge", "unix-recv:"+host+".in", fmt.Sprintf("uds:%s:8004,frame", e.d.Path(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer to.Kill()
	if err := to.WaitOutput("ready", 10*time.Second); err != nil {
		t.Fatal(err)
	}
	const n, most = 6 << 20, 100000
	b := make([]byte, 1<<20)
	for i, send := range []func(seed uint64) error{
		func(seed uint64) error {
			_, err := e.g[0].Check(fmt.Sprintf("guestprog dgrams /tmp/framed.sock %d %d %d", n, seed, most))
			return err
		},
		func(seed uint64) error { return traffic.SendDatagrams(host+".in", n, seed, most, false) },
	} {
		sent := make(chan error, 1)
		go func() { sent <- send(uint64(i)) }()
		_ = l.SetReadDeadline(time.Now().Add(time.Minute))
		want := traffic.NewStream(uint64(i), n)
		exact := make([]byte, most)
		for size := range traffic.Sizes(uint64(i), n, most, false) {
			k, err := l.Read(b)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(want, exact[:size]); err != nil || k != size || string(b[:k]) != string(exact[:size]) {
				t.Fatalf("a datagram of %d bytes came as %d others", size, k)
			}
		}
		if err := <-sent; err != nil {
			t.Error(err)
		}
	}
}

// checkRedirectMessages: seqpacket messages stay whole and apart, both ways, through both kinds of rule, while credit runs out in the midst of them.
func checkRedirectMessages(t *testing.T, e *venv) {
	l, err := net.ListenUnix("unixpacket", &net.UnixAddr{Name: fmt.Sprintf("%s_%d", e.d.Path(0), hostPort+2), Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	var messages atomic.Int64
	go echoPackets(l, &messages)
	e.redirect(t, "q", "vsock:8005=unix-seqpacket:/tmp/q.sock", fmt.Sprintf("unix-seqpacket:/tmp/q.sock=vsock:2:%d", hostPort+2))
	c, err := net.DialUnix("unixpacket", nil, &net.UnixAddr{Name: e.d.Path(0) + "_seqpacket", Net: "unixpacket"})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	_ = c.SetDeadline(time.Now().Add(90 * time.Second))
	b := make([]byte, 1<<20)
	if _, err := fmt.Fprintf(c, "CONNECT 8005\n"); err != nil {
		t.Fatal(err)
	}
	if n, err := c.Read(b); err != nil || !strings.HasPrefix(string(b[:max(n, 0)]), "OK ") {
		t.Fatalf("the answer to CONNECT: %q, %v", b[:max(n, 0)], err)
	}
	const n, most = 15 << 20, 150000 // some 200 messages, many more bytes under way than there is credit
	go func() {
		s := traffic.NewStream(9, n)
		m := make([]byte, most)
		for size := range traffic.Sizes(9, n, most, false) {
			_, _ = io.ReadFull(s, m[:size])
			if _, err := c.Write(m[:size]); err != nil {
				return
			}
		}
	}()
	want, exact := traffic.NewStream(9, n), make([]byte, most)
	for size := range traffic.Sizes(9, n, most, false) {
		k, err := c.Read(b)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := io.ReadFull(want, exact[:size]); err != nil || k != size || string(b[:k]) != string(exact[:size]) {
			t.Fatalf("a message of %d bytes came back as %d others", size, k)
		}
		time.Sleep(time.Millisecond) // so that the others have to wait
	}
}

// checkRedirectClosing: an end that goes away in the midst of a transfer takes the other with it.
func checkRedirectClosing(t *testing.T, e *venv) {
	ends := make(chan error, 8)
	e.port(t, 1236, func(c *net.UnixConn) { // reads some, then goes
		_, err := io.CopyN(io.Discard, c, 3<<20)
		ends <- err
	})
	e.port(t, 1237, func(c *net.UnixConn) { // reads to the end
		_, err := io.Copy(io.Discard, c)
		ends <- err
	})
	for _, path := range []string{"sockmap", "splice", "copy"} {
		t.Run(path, func(t *testing.T) {
			r := e.redirect(t, "c-"+path, "unix:/tmp/c6.sock=vsock:2:1236,path="+path, "unix:/tmp/c7.sock=vsock:2:1237,path="+path)
			if out, exit := e.g[0].RunFor(30*time.Second, "guestprog blast unix:/tmp/c6.sock 1000000000 65536"); exit != 1 || !strings.Contains(out, "broken pipe") && !strings.Contains(out, "reset") {
				t.Errorf("the host has gone: exit %d, %s", exit, out)
			}
			if err := <-ends; err != nil {
				t.Error(err)
			}
			e.sh(t, 0, "timeout -s KILL 1 guestprog blast unix:/tmp/c7.sock 10000000000 65536; true") // a client that dies
			select {
			case err := <-ends:
				if err != nil {
					t.Error(err)
				}
			case <-time.After(20 * time.Second):
				t.Error("the host does not see the end of a client that has died")
			}
			await(t, 20*time.Second, "no flow is left", func() bool { return r.count(t, "open")+r.count(t, "sockmap_open") == 0 })
		})
	}
}

// checkRedirectKilled: when the agent is killed both ends see it, and the next agent takes its sockets over.
func checkRedirectKilled(t *testing.T, e *venv) {
	var n atomic.Int64
	ended := make(chan error, 4)
	e.port(t, 1238, func(c *net.UnixConn) {
		_, err := io.Copy(io.Discard, counted{c, &n})
		ended <- err
	})
	for _, path := range []string{"sockmap", "splice"} {
		r := e.redirect(t, "k-"+path, "unix:/tmp/k.sock=vsock:2:1238,path="+path)
		n.Store(0)
		client, err := e.g[0].Start(time.Minute, "guestprog blast unix:/tmp/k.sock 10000000000 65536")
		if err != nil {
			t.Fatal(err)
		}
		await(t, 20*time.Second, "the transfer is under way", func() bool { return n.Load() > 2<<20 })
		r.stop(t, "KILL")
		if out, exit, err := client.Wait(); err != nil || exit != 1 {
			t.Errorf("%s, client: exit %d, %v, %s", path, exit, err, out)
		}
		select {
		case <-ended:
		case <-time.After(20 * time.Second):
			t.Errorf("%s: the host does not see the end", path)
		}
	}
	e.redirect(t, "k-next", fmt.Sprintf("unix:/tmp/k.sock=vsock:2:%d", hostPort))
	e.sh(t, 0, "guestprog put unix:/tmp/k.sock 1000000 1")
}

// checkRedirectHostRestarts: a server of the host that comes back is found again.
func checkRedirectHostRestarts(t *testing.T, e *venv) {
	serve := func() (stop func(), n *atomic.Int64) {
		n = new(atomic.Int64)
		conns := make(chan net.Conn, 16)
		l := e.port(t, 1239, func(c *net.UnixConn) {
			conns <- c
			_, _ = io.Copy(io.Discard, counted{c, n})
		})
		return func() {
			l.Close()
			for len(conns) > 0 {
				(<-conns).Close()
			}
		}, n
	}
	stop, n := serve()
	e.redirect(t, "r", "unix-dgram:/tmp/r.sock=vsock:2:1239,raw", "unix-dgram:/tmp/rf.sock=vsock:2:1239", "unix:/tmp/rs.sock=vsock:2:1239")
	for range 3 {
		for _, sock := range []string{"r", "rf"} {
			n.Store(0)
			e.sh(t, 0, fmt.Sprintf("guestprog dgrams /tmp/%s.sock 3000000 1 60000", sock))
			await(t, 20*time.Second, sock+": all bytes", func() bool { return n.Load() >= 3000000 })
		}
		stop()
		out, exit := e.g[0].Run("(sleep 0.3; echo) | socat - UNIX-CONNECT:/tmp/rs.sock; guestprog dgrams /tmp/r.sock 10 1 10") // nobody there
		t.Logf("meanwhile: exit %d %s", exit, out)
		stop, n = serve()
		await(t, 20*time.Second, "a datagram comes through", func() bool {
			e.sh(t, 0, "guestprog dgrams /tmp/r.sock 10 1 10; guestprog dgrams /tmp/rf.sock 10 1 10")
			return n.Load() > 0
		})
	}
	stop()
}

// checkRedirectNeverReads: a reader that never reads costs no more than buffers; when it reads at last nothing is missing.
func checkRedirectNeverReads(t *testing.T, e *venv) {
	available := func() int {
		kb, err := strconv.Atoi(e.sh(t, 0, "sed -n 's/MemAvailable: *\\([0-9]*\\) kB/\\1/p' /proc/meminfo"))
		if err != nil {
			t.Fatal(err)
		}
		return kb >> 10
	}
	for i, rule := range []string{"unix:/tmp/n.sock=vsock:2:1240,path=sockmap", "unix:/tmp/n.sock=vsock:2:1240,path=splice", "unix-dgram:/tmp/n.sock=vsock:2:1240,raw", "unix-dgram:/tmp/n.sock=vsock:2:1240"} {
		t.Run(rule, func(t *testing.T) {
			release, sums := make(chan bool), make(chan string, 1)
			l := e.port(t, 1240, func(c *net.UnixConn) {
				<-release
				sum, _ := traffic.Sum(c)
				sums <- sum
			})
			r := e.redirect(t, fmt.Sprint("n", i), rule)
			before := available()
			const n = 48 << 20
			send := fmt.Sprintf("head -c %d /dev/zero | socat -b 60000 - UNIX-CONNECT:/tmp/n.sock", n)
			if strings.HasPrefix(rule, "unix-dgram") {
				send = fmt.Sprintf("head -c %d /dev/zero | socat -b 60000 - UNIX-SENDTO:/tmp/n.sock", n)
			}
			job, err := e.g[0].Start(2*time.Minute, send)
			if err != nil {
				t.Fatal(err)
			}
			e.sh(t, 0, "sleep 2.5")
			if now := available(); before-now > 32 {
				t.Errorf("%d MiB were available, and %d MiB with a reader that does not read", before, now)
			}
			close(release)
			if out, exit, err := job.Wait(); err != nil || exit != 0 {
				t.Errorf("sender: exit %d, %v, %s", exit, err, out)
			}
			if strings.Contains(rule, "dgram") { // it has no end: the agent's is one
				e.sh(t, 0, "sleep 1")
				r.stop(t, "TERM")
			}
			want := int64(n)
			if i == 3 { // frames
				want = -1
			}
			sum := <-sums
			if got, _, _ := strings.Cut(sum, " "); want > 0 && got != fmt.Sprint(want) {
				t.Errorf("%s bytes arrived, want %d", got, want)
			}
			l.Close()
		})
	}
}

// checkRedirectMany: a thousand flows at a time, more than there are slots.
func checkRedirectMany(t *testing.T, e *venv) {
	for _, path := range []string{"sockmap", "splice"} {
		r := e.redirect(t, "m-"+path, fmt.Sprintf("unix:/tmp/m.sock=vsock:2:%d,path=%s", hostPort, path))
		e.shFor(t, 0, 2*time.Minute, "ulimit -n 8192; guestprog parallel unix:/tmp/m.sock 1000 10000")
		e.shFor(t, 0, 2*time.Minute, "for i in $(seq 40); do guestprog put unix:/tmp/m.sock 600000 $i 5000 >/tmp/m.$i 2>&1 & done; wait; cat /tmp/m.*; [ $(cat /tmp/m.* | grep -c correct) = 40 ]")
		await(t, 20*time.Second, "no flow is left", func() bool { return r.count(t, "open")+r.count(t, "sockmap_open") == 0 })
		fds := e.sh(t, 0, "ls /proc/"+r.pid+"/fd | wc -l")
		if n, _ := strconv.Atoi(fds); n > 1000 {
			t.Errorf("%s: %d descriptors are left open", path, n)
		}
		r.stop(t, "TERM")
	}
}

// checkRedirectFallback: without privilege the next path is taken, which is said once, and counted.
func checkRedirectFallback(t *testing.T, e *venv) {
	sums := make(chan string, 1)
	var n atomic.Int64
	e.port(t, 1241, func(c *net.UnixConn) {
		sum, _ := traffic.Sum(counted{c, &n})
		sums <- sum
	})
	r := e.redirectAs(t, `su -s /bin/sh -c 'exec "$0" "$@"' nobody`, "f", "unix-dgram:/tmp/f.sock,mode=0666=vsock:2:1241,raw", fmt.Sprintf("unix:/tmp/fs.sock,mode=0666=vsock:2:%d,path=sockmap", hostPort))
	e.sh(t, 0, "guestprog put unix:/tmp/fs.sock 1000000 1 && guestprog put unix:/tmp/fs.sock 1000000 2")
	e.sh(t, 0, "guestprog dgrams /tmp/f.sock 3000000 1 60000")
	await(t, 20*time.Second, "all bytes", func() bool { return n.Load() >= 3000000 })
	if fell, copied, spliced := r.count(t, "flows_fell_back"), r.count(t, "flows_copy"), r.count(t, "flows_splice"); fell != 3 || copied != 1 || spliced != 2 {
		t.Errorf("%d fell back, %d copied, %d spliced, want 3, 1, 2", fell, copied, spliced)
	}
	if out := e.sh(t, 0, "grep -c 'no sockmap' "+r.log); out != "1" {
		t.Errorf("the reason was logged %s times", out)
	}
	r.stop(t, "TERM")
	if sum := <-sums; sum != traffic.SumOf(1, 3000000) {
		t.Errorf("got %s", sum)
	}
}
