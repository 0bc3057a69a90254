package main

import (
	"encoding/json"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"guestwire/test/harness/netns"
)

// iperf is what is read of iperf3's report.
type iperf struct {
	Error string `json:"error"`
	End   struct {
		Received struct {
			Bytes   float64 `json:"bytes"`
			Seconds float64 `json:"seconds"`
			Bits    float64 `json:"bits_per_second"`
			Packets float64 `json:"packets"`
			Lost    float64 `json:"lost_packets"`
		} `json:"sum_received"`
		Sum struct {
			Seconds float64 `json:"seconds"`
			Packets float64 `json:"packets"`
			Lost    float64 `json:"lost_packets"`
		} `json:"sum"`
	} `json:"end"`
}

func (s *bed) iperf(seconds int, args string) (r iperf, err error) {
	cmd := fmt.Sprintf("iperf3 -c %s -J -t %d %s", netns.ServiceV4, seconds, args)
	out, err := s.sh(time.Duration(seconds)*time.Second+40*time.Second, cmd)
	if err != nil {
		return r, err
	}
	if i := strings.IndexByte(out, '{'); i > 0 {
		out = out[i:]
	}
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return r, fmt.Errorf("%s: %w: %.300s", cmd, err, out)
	}
	if r.Error != "" {
		return r, fmt.Errorf("%s: %s", cmd, r.Error)
	}
	return r, nil
}

const gib = 1 << 30

// tcp measures both directions and the daemon's processor time for them.
func (b *bench) tcp(s *bed, round int, name, kind string) error {
	for _, way := range []struct{ name, arg string }{{"guest to host", ""}, {"host to guest", "-R"}} {
		before, err := s.d.CPU()
		if err != nil {
			return err
		}
		start := time.Now()
		r, err := s.iperf(b.seconds, way.arg)
		if err != nil {
			return err
		}
		after, err := s.d.CPU()
		if err != nil {
			return err
		}
		rate := r.End.Received.Bits
		b.results.add(name+", TCP "+way.name, "Gbit/s", kind, round, rate/1e9)
		carried := r.End.Received.Bytes / gib
		if carried > 0 {
			b.results.add(name+", CPU of the daemon, TCP "+way.name, "s/GiB", kind, round, (after-before).Seconds()/carried)
		}
		note("%s %s %s: %.2f Gbit/s, daemon %.0f %% CPU", name, kind, way.name, rate/1e9, 100*(after-before).Seconds()/time.Since(start).Seconds())
	}
	return nil
}

// udp measures datagrams of 1,400 bytes that arrive, and the share that does not.
func (b *bench) udp(s *bed, round int, name, kind string) error {
	for _, way := range []struct{ name, args string }{
		{"guest to host, unlimited", "-u -l 1400 -b 0"},
		{"host to guest, 100 Mbit/s offered", "-u -l 1400 -b 100M -R"},
		{"host to guest, 400 Mbit/s offered", "-u -l 1400 -b 400M -R"},
	} {
		r, err := s.iperf(b.seconds, way.args)
		if err != nil {
			return err
		}
		got, lost, seconds := r.End.Received.Packets, r.End.Received.Lost, r.End.Received.Seconds
		if got == 0 {
			got, lost, seconds = r.End.Sum.Packets, r.End.Sum.Lost, r.End.Sum.Seconds
		}
		if seconds == 0 || got == 0 {
			return fmt.Errorf("iperf3 %s counted nothing", way.args)
		}
		b.results.add(name+", UDP 1,400 B "+way.name, "kpps", kind, round, (got-lost)/seconds/1e3)
		b.results.add(name+", UDP 1,400 B "+way.name+", lost", "%", kind, round, 100*lost/got)
		note("%s %s UDP %s: %.1f kpps, %.1f %% lost", name, kind, way.name, (got-lost)/seconds/1e3, 100*lost/got)
	}
	return nil
}

// requests measures transactions with netperf.
func (b *bench) requests(s *bed, round int, name, kind string) error {
	for _, test := range []string{"TCP_RR", "UDP_RR", "TCP_CRR"} {
		out, err := s.sh(time.Duration(b.seconds)*time.Second+40*time.Second,
			fmt.Sprintf("netperf -H %s -4 -t %s -l %d -P 0 -- -o THROUGHPUT", netns.ServiceV4, test, b.seconds))
		if err != nil {
			return err
		}
		v, err := strconv.ParseFloat(lastField(out), 64)
		if err != nil {
			return fmt.Errorf("netperf %s: %w: %s", test, err, out)
		}
		b.results.add(name+", "+test, "1/s", kind, round, v)
		note("%s %s %s: %.0f/s", name, kind, test, v)
	}
	return nil
}

func lastField(s string) string {
	f := strings.Fields(s)
	if len(f) == 0 {
		return ""
	}
	return f[len(f)-1]
}

func note(format string, a ...any) { fmt.Fprintf(os.Stderr, "  "+format+"\n", a...) }
