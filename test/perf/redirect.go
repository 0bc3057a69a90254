package main

import (
	"errors"
	"fmt"
	"io"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
)

// redirectRow begins the names of this part's rows.
const redirectRow = "redirect, "

const socat = "socat"

// redirectWays are what leads the guest's UNIX socket to the host, as commands for a datagram and for a stream socket; %s is its path.
var redirectWays = []struct{ kind, dgram, stream string }{
	{backend.Guestwire, "guestwire agent redirect unix-dgram:%s=vsock:2:1234,raw", "guestwire agent redirect unix:%s=vsock:2:1234"},
	{"sockmap", "guestwire agent redirect unix-dgram:%s=vsock:2:1234,raw,path=sockmap", "guestwire agent redirect unix:%s=vsock:2:1234,path=sockmap"},
	{"copy", "guestwire agent redirect unix-dgram:%s=vsock:2:1234,raw,path=copy", "guestwire agent redirect unix:%s=vsock:2:1234,path=copy"},
	{"socat -b 65536", "socat -b 65536 VSOCK-CONNECT:2:1234 UNIX-RECV:%s", "socat -b 65536 UNIX-LISTEN:%s,fork VSOCK-CONNECT:2:1234"},
	{socat, "socat VSOCK-CONNECT:2:1234 UNIX-RECV:%s", "socat UNIX-LISTEN:%s,fork VSOCK-CONNECT:2:1234"},
}

// redirectLoads are what one thread of the guest sends.
var redirectLoads = []struct {
	name   string
	stream bool
	size   int
	bytes  int64
}{
	{"datagrams of 64 KiB", false, 64 << 10, 192 << 20},
	{"datagrams of 4 KiB", false, 4 << 10, 96 << 20},
	{"stream, writes of 64 KiB", true, 64 << 10, 192 << 20},
	{"stream, writes of 4 KiB", true, 4 << 10, 96 << 20},
}

// redirect is one round of all ways in one guest. It has its peers in itself, so it is run for one kind.
func (b *bench) redirect(round int, kind string) error {
	if kind != backend.Guestwire {
		return nil
	}
	s, err := b.layRedirect()
	if err == nil {
		err = s.measure(round)
	}
	s.g.Stop()
	if s.d != nil {
		s.d.Kill()
	}
	if s.l != nil {
		s.l.Close()
	}
	return err
}

// redirectBed is a guest with a server on the host that counts.
type redirectBed struct {
	b           *bench
	d           *backend.VSock
	g           *guest.Guest
	l           net.Listener
	n           atomic.Int64 // bytes that have come
	first, last atomic.Int64 // when, in ns
}

func (b *bench) layRedirect() (*redirectBed, error) {
	s := &redirectBed{b: b}
	dir, err := b.tempDir("r")
	if err != nil {
		return s, err
	}
	if err := os.MkdirAll(filepath.Join(dir, "guest"), 0o755); err != nil {
		return s, err
	}
	initrds, err := b.lab.Initrds(filepath.Join(dir, "guest"), b.prog, "socat", b.binary)
	if err != nil {
		return s, err
	}
	if s.d, err = backend.StartVSock(b.lab, backend.VSockConfig{Kind: backend.Guestwire, Binary: b.binary, Dir: dir, CIDs: []uint32{3}}); err != nil {
		return s, err
	}
	if s.l, err = net.Listen("unix", s.d.Path(0)+"_1234"); err != nil {
		return s, err
	}
	go s.serve()
	s.g, err = guest.StartQEMU(guest.QEMUConfig{Kernel: b.lab.Vmlinuz(), Initrds: initrds, Dir: filepath.Join(dir, "guest"), Accel: b.accel, VSock: guest.VhostUserVSock(s.d.Socket(0))})
	return s, err
}

// serve counts what comes, and when the first and the last of it came.
func (s *redirectBed) serve() {
	for buf := make([]byte, 1<<20); ; {
		c, err := s.l.Accept()
		if err != nil {
			return
		}
		for {
			n, err := c.Read(buf)
			now := time.Now().UnixNano()
			s.first.CompareAndSwap(0, now)
			if n > 0 {
				s.last.Store(now)
				s.n.Add(int64(n))
			}
			if err == io.EOF || err != nil {
				break
			}
		}
		c.Close()
	}
}

func (s *redirectBed) measure(round int) error {
	ways := slices.Clone(redirectWays)
	if round%2 == 1 { // nobody has the warmer guest every time
		slices.Reverse(ways)
	}
	for _, to := range []struct {
		name string
		rate func(command, send string) (float64, error)
	}{{"", s.rate}, {", within the guest (loopback)", s.loopback}} {
		for _, load := range redirectLoads {
			for _, w := range ways {
				command := w.dgram
				send := fmt.Sprintf("guestprog dgrams /tmp/r.sock %d 1 %d fixed", load.bytes, load.size)
				if load.stream {
					command, send = w.stream, fmt.Sprintf("guestprog pour /tmp/r.sock %d %d", load.bytes, load.size)
				}
				rate, err := to.rate(fmt.Sprintf(command, "/tmp/r.sock"), send)
				if err != nil {
					return fmt.Errorf("%s, %s%s: %w", w.kind, load.name, to.name, err)
				}
				s.b.results.add(redirectRow+load.name+to.name, "MB/s", w.kind, round, rate/1e6)
				note("%s, %s%s: %.1f MB/s", w.kind, load.name, to.name, rate/1e6)
			}
		}
	}
	return nil
}

const (
	startWay = "rm -f /tmp/r.sock; setsid %s >/tmp/r.log 2>&1 & echo $! >/tmp/r.pid; for i in $(seq 200); do [ -S /tmp/r.sock ] && exec sleep 0.5; sleep 0.05; done; cat /tmp/r.log; exit 1"
	endWay   = "kill $(cat /tmp/r.pid); while [ -e /proc/$(cat /tmp/r.pid) ]; do sleep 0.02; done; killall socat 2>/dev/null; true"
)

// loopback is the bytes per second that arrive at another program of the guest, through the kernel's vsock_loopback: what the way costs without a device.
func (s *redirectBed) loopback(command, send string) (float64, error) {
	out, err := s.g.CheckFor(3*time.Minute, fmt.Sprintf("modprobe vsock_loopback; setsid guestprog sink 1234 >/tmp/sink.log 2>&1 & for i in $(seq 100); do grep -q serving /tmp/sink.log && break; sleep 0.05; done; "+
		startWay, strings.Replace(command, ":2:1234", ":1:1234", 1)))
	if err != nil {
		return 0, fmt.Errorf("%w: %s", err, out)
	}
	if _, err := s.g.CheckFor(2*time.Minute, send+" && sleep 1"); err != nil {
		return 0, err
	}
	out, err = s.g.Check(endWay + "; for i in $(seq 100); do grep -q bytes /tmp/sink.log && break; sleep 0.05; done; sed -n 's/ bytes a second//p' /tmp/sink.log")
	if err != nil {
		return 0, err
	}
	return strconv.ParseFloat(strings.TrimSpace(out), 64)
}

// rate is the bytes per second that arrive at the host while a sender sends.
func (s *redirectBed) rate(command, send string) (float64, error) {
	if _, err := s.g.Check(fmt.Sprintf(startWay, command)); err != nil {
		return 0, err
	}
	s.n.Store(0)
	s.first.Store(0)
	start := time.Now()
	_, err := s.g.CheckFor(2*time.Minute, send)
	if err != nil {
		return 0, err
	}
	for n := int64(-1); n != s.n.Load(); time.Sleep(300 * time.Millisecond) { // the rest arrives
		n = s.n.Load()
	}
	took := time.Duration(s.last.Load() - max(s.first.Load(), start.UnixNano()))
	if _, err := s.g.Check(endWay); err != nil {
		return 0, err
	}
	if s.n.Load() == 0 {
		return 0, errors.New("nothing has arrived")
	}
	return float64(s.n.Load()) / took.Seconds(), nil
}

// redirects prints the rows of this part: every way's median, and the median of the rounds' ratios to socat.
func (b *bench) redirects(w io.Writer, names []string) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !strings.HasPrefix(n, redirectRow) })
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| UNIX socket in the guest to a server on the host | guestwire | by sockmap | by copying | socat -b 65536 | socat | guestwire / socat | guestwire / copying |\n|---|---|---|---|---|---|---|---|\n")
	for _, n := range names {
		x := b.results[n]
		fmt.Fprintf(w, "| %s, %s", strings.TrimPrefix(n, redirectRow), x.unit)
		for _, way := range redirectWays {
			if v := x.all(way.kind); len(v) > 0 {
				fmt.Fprintf(w, " | %s", number(median(v)))
			} else {
				fmt.Fprint(w, " | -")
			}
		}
		for _, peer := range []string{socat, "copy"} {
			r := x.ratios(x, peer)
			fmt.Fprintf(w, " | %.2f (%.2f - %.2f)", median(r), slices.Min(r), slices.Max(r))
		}
		fmt.Fprintln(w, " |")
	}
}
