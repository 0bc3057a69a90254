package saturate

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

const chunk = 64 << 20 // bytes per operation

func BenchmarkGuestToHost(b *testing.B) {
	c := start(b, func(conn net.Conn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := conn.Read(buf); err != nil {
				return
			}
		}
	})
	run(b, func() { c.upload(chunk) })
	if c.bad > 0 {
		b.Errorf("%d segments out of order", c.bad)
	}
}

func BenchmarkHostToGuest(b *testing.B) {
	c := start(b, func(conn net.Conn) {
		buf := make([]byte, 256<<10)
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	})
	run(b, func() { c.download(chunk) })
	if c.bad > 0 {
		b.Errorf("%d segments out of order", c.bad)
	}
}

// BenchmarkIdleFlows opens 10,000 connections and reports what each costs the
// daemon in memory of its own while it is idle. The goal is at most 1 KiB.
func BenchmarkIdleFlows(b *testing.B) {
	const flows = 10_000
	var perFlow, idle float64
	for b.Loop() {
		b.StopTimer()
		c := start(b, func(conn net.Conn) { _, _ = io.Copy(io.Discard, conn) })
		before := rssAnon(b)
		b.StartTimer()
		for i := range flows {
			c.g.open(uint16(10_000+i), c.dport)
		}
		b.StopTimer()
		time.Sleep(time.Second)
		perFlow, idle = float64(rssAnon(b)-before)/flows, float64(before)/(1<<20)
		stop(b)
		b.StartTimer()
	}
	b.ReportMetric(perFlow, "B/flow")
	b.ReportMetric(idle, "MiB-idle")
	b.ReportMetric(flows*float64(b.N)/b.Elapsed().Seconds(), "connects/s")
}

// BenchmarkReady measures the time from exec to the ready line. The goal is
// 50 ms.
func BenchmarkReady(b *testing.B) {
	build(b)
	for b.Loop() {
		launch(b)
		b.StopTimer()
		stop(b)
		b.StartTimer()
	}
}

// rssAnon is the anonymous memory of the daemon in bytes (proc(5), VmRSS split).
func rssAnon(b *testing.B) int {
	status, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", running.Process.Pid))
	must(b, err)
	for line := range strings.Lines(string(status)) {
		var kib int
		if n, _ := fmt.Sscanf(line, "RssAnon: %d kB", &kib); n == 1 {
			return kib << 10
		}
	}
	b.Fatal("no RssAnon")
	return 0
}

// run measures op and, right after, plain loopback: ours, and iperf3's if there is
// one.
func run(b *testing.B, op func()) {
	b.SetBytes(chunk)
	op() // windows and buffers open up
	b.ResetTimer()
	for b.Loop() {
		op()
	}
	mbs := float64(chunk) * float64(b.N) / b.Elapsed().Seconds() / 1e6
	plain := loopback(b)
	b.ReportMetric(plain, "loopback-MB/s")
	b.ReportMetric(mbs/plain, "ratio")
	if other := iperf3(b); other > 0 {
		b.ReportMetric(other, "iperf3-MB/s")
		b.ReportMetric(mbs/other, "ratio-to-iperf3")
	}
}

// loopback is the throughput of one TCP connection over loopback, one writer,
// one reader.
func loopback(b *testing.B) float64 {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	defer l.Close()
	go func() {
		conn, err := l.Accept()
		if err != nil {
			return
		}
		defer conn.Close()
		buf := make([]byte, 128<<10) // as iperf3 writes
		for {
			if _, err := conn.Write(buf); err != nil {
				return
			}
		}
	}()
	conn, err := net.Dial("tcp", l.Addr().String())
	must(b, err)
	defer conn.Close()
	buf := make([]byte, 128<<10)
	var n int64
	begin := time.Now()
	for time.Since(begin) < 2*time.Second {
		k, err := conn.Read(buf)
		must(b, err)
		n += int64(k)
	}
	return float64(n) / time.Since(begin).Seconds() / 1e6
}

// start runs the daemon and a service on the host's loopback, and connects the
// guest to it.
func start(b *testing.B, serve func(net.Conn)) *conn {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	must(b, err)
	b.Cleanup(func() { l.Close() })
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return
			}
			go func() {
				defer conn.Close()
				serve(conn)
			}()
		}
	}()
	path := daemon(b)
	g := connect(b, path)
	return g.open(40000, uint16(l.Addr().(*net.TCPAddr).Port))
}

// binary is built once for all benchmarks.
func TestMain(m *testing.M) {
	dir, err := os.MkdirTemp("", "saturate")
	if err != nil {
		panic(err)
	}
	program = filepath.Join(dir, "guestwire")
	code := m.Run()
	os.RemoveAll(dir)
	os.Exit(code)
}

var (
	program string
	running *exec.Cmd // the daemon started last
)

// stop ends the daemon, which must go at once.
func stop(b *testing.B) {
	must(b, running.Process.Signal(os.Interrupt))
	must(b, running.Wait())
}

func build(b *testing.B) {
	if _, err := os.Stat(program); err == nil {
		return
	}
	cmd := exec.Command("go", "build", "-o", program, "guestwire/cmd/guestwire")
	cmd.Env = append(os.Environ(), "CGO_ENABLED=0")
	if out, err := cmd.CombinedOutput(); err != nil {
		b.Fatalf("%v\n%s", err, out)
	}
}

// daemon starts `guestwire net` for the length of the benchmark and returns its
// socket.
func daemon(b *testing.B) string {
	build(b)
	path := launch(b)
	cmd := running
	b.Cleanup(func() {
		_ = cmd.Process.Signal(os.Interrupt)
		_ = cmd.Wait()
	})
	return path
}

// launch starts `guestwire net` and waits for its ready line.
func launch(b *testing.B) string {
	path := filepath.Join(b.TempDir(), "s")
	cmd := exec.Command(program, "net", "--socket-path", path, "--map-host-loopback", "10.0.2.2", "--log-level", "warn")
	stderr, err := cmd.StderrPipe()
	must(b, err)
	must(b, cmd.Start())
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "ready") {
			go io.Copy(os.Stderr, stderr)
			running = cmd
			return path
		}
		b.Log(lines.Text())
	}
	b.Fatal("the daemon did not come up")
	return ""
}
