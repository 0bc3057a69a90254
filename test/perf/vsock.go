package main

import (
	"errors"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
	"guestwire/test/harness/traffic"
	"guestwire/test/harness/vsock"
)

// Ports of the traffic servers on the host and in the guest.
const (
	vsockHostPort  = 7700
	vsockGuestPort = 7777
	vsockPingPort  = 7790 // on either side
)

// vsockBed is one vsock device with a guest and the host's traffic server.
type vsockBed struct {
	b    *bench
	d    *backend.VSock
	g    *guest.Guest
	l    net.Listener
	kind string
	name string // of the guest, for the table
}

// vsockSizes are the writes that are measured, and how much in all: enough for about a second.
var vsockSizes = []struct {
	name  string
	chunk int
	bytes int64
}{{"4 KiB", 4 << 10, 48 << 20}, {"32 KiB", 32 << 10, 128 << 20}, {"64 KiB", 64 << 10, 256 << 20}, {"1 MiB", 1 << 20, 256 << 20}}

// vsockRow begins the names of this part's rows.
const vsockRow = "vsock, "

// peerLimit is the largest write of a guest that the peer takes: beyond it nothing arrives, and the connection hangs.
const peerLimit = 32 << 10

// vsock is one round of one daemon with both kinds of guest.
func (b *bench) vsock(round int, kind string) error {
	for _, uml := range []bool{true, false} {
		s, err := b.layVSock(kind, uml)
		if err == nil {
			err = s.measure(round)
		}
		if err != nil && s.d != nil {
			err = fmt.Errorf("%w\n--- daemon:\n%s", err, s.d.Tail(10))
		}
		s.clear()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) layVSock(kind string, uml bool) (*vsockBed, error) {
	s := &vsockBed{b: b, kind: kind, name: "UML"}
	dir, err := b.tempDir("v")
	if err != nil {
		return s, err
	}
	if s.d, err = backend.StartVSock(b.lab, backend.VSockConfig{Kind: kind, Binary: b.binary, Dir: dir, CIDs: []uint32{3}}); err != nil {
		return s, err
	}
	if s.l, err = net.Listen("unix", fmt.Sprintf("%s_%d", s.d.Path(0), vsockHostPort)); err != nil {
		return s, err
	}
	go traffic.NewServer().Serve(s.l)
	gdir := filepath.Join(dir, "guest")
	if err := os.MkdirAll(gdir, 0o755); err != nil {
		return s, err
	}
	if uml {
		s.g, err = guest.StartUML(guest.UMLConfig{Kernel: b.lab.UML(), Tree: b.lab.Tree(), Prog: b.prog, Dir: gdir, VSock: s.d.Socket(0), Add: []string{b.lab.VSockTest("vsock_perf")}})
	} else {
		s.name = "QEMU/" + strings.ToUpper(b.accel)
		s.g, err = guest.StartQEMU(guest.QEMUConfig{Kernel: b.lab.Vmlinuz(), Initrds: b.initrds, Dir: gdir, Accel: b.accel, VSock: guest.VhostUserVSock(s.d.Socket(0))})
	}
	if err != nil {
		return s, err
	}
	_, err = s.g.Check(fmt.Sprintf("setsid guestprog serve vsock:%d >/tmp/serve.log 2>&1 & for i in $(seq 100); do grep -q serving /tmp/serve.log && exit 0; sleep 0.1; done; exit 1", vsockGuestPort))
	return s, err
}

func (s *vsockBed) clear() {
	s.g.Stop()
	if s.d != nil {
		s.d.Kill()
	}
	if s.l != nil {
		s.l.Close()
	}
}

func (s *vsockBed) peer() bool { return s.kind == backend.VhostDeviceVSock }

func (s *vsockBed) add(what, unit string, round int, v float64) {
	s.b.results.add(vsockRow+s.name+", "+what, unit, s.kind, round, v)
	note("%s %s %s: %s %s", s.name, s.kind, what, number(v), unit)
}

func (s *vsockBed) measure(round int) error {
	for _, f := range []func(int) error{s.toHost, s.toGuest, s.kernelPerf, s.latency, s.perMiB, s.calls} {
		if err := f(round); err != nil {
			return err
		}
	}
	return nil
}

// run runs a client in the guest and returns the numbers that it prints.
func (s *vsockBed) run(args string) ([]float64, error) {
	out, err := s.g.CheckFor(2*time.Minute, "guestprog "+args)
	if err != nil {
		return nil, err
	}
	var v []float64
	for _, f := range strings.Fields(out) {
		n, err := strconv.ParseFloat(f, 64)
		if err != nil {
			return nil, fmt.Errorf("%s: %w: %s", args, err, out)
		}
		v = append(v, n)
	}
	if len(v) == 0 {
		return nil, errors.New(args + ": no result")
	}
	return v, nil
}

func server() string { return fmt.Sprintf("vsock:%d:%d", vsock.Host, vsockHostPort) }

// toHost measures what a guest's program gets through, and what the daemon's processor does for it.
func (s *vsockBed) toHost(round int) error {
	for _, z := range vsockSizes {
		if s.peer() && z.chunk > peerLimit {
			continue
		}
		before, err := s.d.CPU()
		if err != nil {
			return err
		}
		v, err := s.run(fmt.Sprintf("blast %s %d %d", server(), z.bytes, z.chunk))
		if err != nil {
			return err
		}
		after, err := s.d.CPU()
		if err != nil {
			return err
		}
		s.add("guest to host, writes of "+z.name, "MB/s", round, v[0]/1e6)
		s.add("CPU of the daemon, guest to host, writes of "+z.name, "s/GiB", round, (after-before).Seconds()/float64(z.bytes)*gib)
	}
	return nil
}

// toGuest lets a program on the host send.
func (s *vsockBed) toGuest(round int) error {
	for _, z := range vsockSizes {
		v, err := s.run(fmt.Sprintf("drain %s %d %d", server(), min(z.bytes, 128<<20), z.chunk))
		if err != nil {
			return err
		}
		s.add("host to guest, writes of "+z.name, "MB/s", round, v[0]/1e6)
	}
	return nil
}

var txPerformance = regexp.MustCompile(`tx performance: ([0-9.]+) Gbits/s`)

// kernelPerf is the kernel's own vsock_perf, to a program on the host that reads. What it prints is when the last write has returned.
func (s *vsockBed) kernelPerf(round int) error {
	l, err := net.Listen("unix", fmt.Sprintf("%s_1234", s.d.Path(0)))
	if err != nil {
		return err
	}
	defer l.Close()
	go func() {
		for b := make([]byte, 1<<20); ; {
			c, err := l.Accept()
			if err != nil {
				return
			}
			for {
				if _, err := c.Read(b); err != nil {
					break
				}
			}
			c.Close()
		}
	}()
	for _, size := range []string{"32K", "64K", "1M"} {
		if s.peer() && size != "32K" {
			continue
		}
		out, err := s.g.CheckFor(time.Minute, fmt.Sprintf("vsock_perf --sender %d --port 1234 --bytes 128M --buf-size %s", vsock.Host, size))
		if err != nil {
			return err
		}
		m := txPerformance.FindStringSubmatch(out)
		if m == nil {
			return fmt.Errorf("vsock_perf: %s", out)
		}
		v, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return err
		}
		s.add("vsock_perf, guest to host, writes of "+size, "MB/s", round, v*1000/8)
	}
	return nil
}

// perMiB reads guestwire's own counters around a transfer: what does not depend on the machine's mood.
func (s *vsockBed) perMiB(round int) error {
	if s.peer() {
		return nil
	}
	const mib = 64
	for _, way := range []string{"blast", "drain"} {
		before, err := s.d.Stats()
		if err != nil {
			return err
		}
		if _, err := s.run(fmt.Sprintf("%s %s %d 65536", way, server(), mib<<20)); err != nil {
			return err
		}
		after, err := s.d.Stats()
		if err != nil {
			return err
		}
		sum := func(names ...string) (v int64) {
			for _, n := range names {
				v += after["vsock_"+n] - before["vsock_"+n]
			}
			return v
		}
		name := map[string]string{"blast": "guest to host", "drain": "host to guest"}[way]
		for _, c := range []struct {
			what string
			v    int64
		}{
			{"packets", sum("tx_packets", "rx_packets")}, {"credit updates", sum("credit_updates")}, {"socket reads and writes", sum("reads", "writes")},
			{"calls", sum("rx_ring_calls", "tx_ring_calls")}, {"kicks", sum("kicks")}, {"waits of the loop", after["loop_waits"] - before["loop_waits"]},
		} {
			s.add(fmt.Sprintf("%s per MiB, %s, writes of 64 KiB", c.what, name), "1/MiB", round, float64(c.v)/mib)
		}
	}
	return nil
}

var straceTotal = regexp.MustCompile(`(?m)^100\.00\s+\S+\s+(?:\S+\s+)?(\d+)\s+(?:\d+\s+)?total`)

// calls counts the daemon's system calls with strace, which works for both; the transfer itself is slower by it.
func (s *vsockBed) calls(round int) error {
	const mib = 32
	for _, way := range []string{"blast", "drain"} {
		p, err := spawn.Start(spawn.Options{}, s.b.lab.Program("strace", "-c", "-f", "-p", fmt.Sprint(s.d.PID()))...)
		if err != nil {
			return err
		}
		defer p.Kill()
		if err := p.WaitOutput("attached", 10*time.Second); err != nil {
			return err
		}
		if _, err := s.run(fmt.Sprintf("%s %s %d %d", way, server(), mib<<20, peerLimit)); err != nil {
			return err
		}
		if err := p.Signal(syscall.SIGINT); err != nil {
			return err
		}
		_ = p.Wait(10 * time.Second) // strace ends as the signal would have it
		m := straceTotal.FindStringSubmatch(p.Output())
		if m == nil {
			return fmt.Errorf("strace: %s", p.Tail(30))
		}
		n, err := strconv.ParseFloat(m[1], 64)
		if err != nil {
			return err
		}
		name := map[string]string{"blast": "guest to host", "drain": "host to guest"}[way]
		s.add("system calls per MiB (strace), "+name+", writes of 32 KiB", "1/MiB", round, n/mib)
	}
	return nil
}
