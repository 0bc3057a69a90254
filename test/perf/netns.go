package main

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
)

// pasta is the peer of the netns part: passt's personality for namespaces.
const pasta = "pasta"

// netnsRow begins the names of this part's rows.
const netnsRow = "namespace, "

// Ports of the forwards of the short way, both ways; that of iperf3; and of the HTTP server.
const (
	loopInPort = 5301
	iperfPort  = 5201
	httpPort   = 8080
)

// netnsBed is one namespace and what connects it.
type netnsBed struct {
	b    *bench
	w    *netns.World
	ns   *netns.NS
	d    *spawn.Process
	kind string
	rest []interface{ Kill() }
}

// netns is one round of one daemon with a namespace: natively, without a VM.
func (b *bench) netns(round int, kind string) error {
	for _, mtu := range []int{1500, 65520} {
		s, err := b.layNetns(kind, mtu)
		if err == nil {
			err = s.measure(round, mtu)
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

func (b *bench) layNetns(kind string, mtu int) (s *netnsBed, err error) {
	s = &netnsBed{b: b, kind: kind}
	if s.w, err = netns.New(); err != nil {
		return s, err
	}
	if s.ns, err = s.w.Add("inside"); err != nil {
		return s, err
	}
	for _, x := range []struct {
		ns   *netns.NS
		argv []string
	}{
		{s.w.Peer, b.lab.Program("iperf3", "-s")}, {s.w.Peer, b.lab.Program("netserver", "-D")},
		{s.w.Host, b.lab.Program("iperf3", "-s")}, {s.ns, b.lab.Program("iperf3", "-s", "-p", fmt.Sprint(loopInPort))},
	} {
		p, err := spawn.Start(spawn.Options{NS: x.ns.Name}, x.argv...)
		if err != nil {
			return s, err
		}
		s.rest = append(s.rest, p)
	}
	forwards := []string{"-t", fmt.Sprint(loopInPort), "-T", fmt.Sprint(iperfPort), "--mtu", fmt.Sprint(mtu)}
	argv := append([]string{b.binary, "netns", "--config-net"}, append(forwards, s.ns.Name)...)
	if kind == pasta {
		args := []string{"-f", "-q", "--runas", "0:0", "--config-net", "-u", "none", "-U", "none"}
		argv = b.lab.Program("pasta.avx2", append(append(args, forwards...), "--netns", "/run/netns/"+s.ns.Name)...)
	}
	if s.d, err = spawn.Start(spawn.Options{NS: s.w.Host.Name}, argv...); err != nil {
		return s, err
	}
	return s, s.connected()
}

// connected waits until the namespace reaches the peer.
func (s *netnsBed) connected() error {
	var err error
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && !s.d.Exited(); time.Sleep(50 * time.Millisecond) {
		var c net.Conn
		if c, err = s.ns.Dial("tcp", fmt.Sprintf("%s:%d", netns.ServiceV4, iperfPort)); err == nil {
			return c.Close()
		}
	}
	return fmt.Errorf("the namespace is not connected: %v", err)
}

func (s *netnsBed) clear() {
	s.d.Kill()
	for _, p := range s.rest {
		p.Kill()
	}
	if s.w != nil {
		s.w.Close()
	}
}

func (s *netnsBed) measure(round, mtu int) error {
	name := fmt.Sprintf("%sMTU %d", netnsRow, mtu)
	peer := fmt.Sprintf("%s -p %d", netns.ServiceV4, iperfPort)
	if err := s.stream(round, name+", TCP namespace to host", s.ns, peer); err != nil {
		return err
	}
	if err := s.stream(round, name+", TCP host to namespace", s.ns, peer+" -R"); err != nil {
		return err
	}
	if mtu != 1500 {
		return nil
	}
	if err := s.short(round); err != nil {
		return err
	}
	if err := s.requests(round); err != nil {
		return err
	}
	return s.http(round)
}

// stream measures one TCP connection of iperf3, and the daemon's processor time for it.
func (s *netnsBed) stream(round int, name string, from *netns.NS, args string) error {
	before, err := s.d.CPU()
	if err != nil {
		return err
	}
	rate, carried, err := s.iperf(from, args)
	if err != nil {
		return err
	}
	after, err := s.d.CPU()
	if err != nil {
		return err
	}
	s.b.results.add(name, "Gbit/s", s.kind, round, rate/1e9)
	if carried > 0 {
		s.b.results.add(name+", CPU of the daemon", "s/GiB", s.kind, round, (after-before).Seconds()/(carried/gib))
	}
	note("%s %s: %.2f Gbit/s", name, s.kind, rate/1e9)
	return nil
}

func (s *netnsBed) iperf(from *netns.NS, args string) (rate, carried float64, err error) {
	argv := append([]string{"-J", "-t", fmt.Sprint(s.b.seconds), "-c"}, strings.Fields(args)...)
	out, err := from.Run(time.Duration(s.b.seconds)*time.Second+40*time.Second, s.b.lab.Program("iperf3", argv...)...)
	if err != nil {
		return 0, 0, err
	}
	var r iperf
	if err := json.Unmarshal([]byte(out), &r); err != nil {
		return 0, 0, fmt.Errorf("iperf3 %s: %w: %.300s", args, err, out)
	}
	return r.End.Received.Bits, r.End.Received.Bytes, nil
}

// short measures the way between the loopbacks, and plain loopback beside it.
func (s *netnsBed) short(round int) error {
	if err := s.stream(round, netnsRow+"loopback, TCP namespace to host", s.ns, fmt.Sprintf("127.0.0.1 -p %d", iperfPort)); err != nil {
		return err
	}
	if err := s.stream(round, netnsRow+"loopback, TCP host to namespace", s.w.Host, fmt.Sprintf("127.0.0.1 -p %d", loopInPort)); err != nil {
		return err
	}
	rate, _, err := s.iperf(s.w.Host, fmt.Sprintf("127.0.0.1 -p %d", iperfPort))
	s.b.results.add(netnsRow+"plain loopback, for comparison", "Gbit/s", s.kind, round, rate/1e9)
	return err
}

// requests measures transactions with netperf.
func (s *netnsBed) requests(round int) error {
	for _, test := range []string{"TCP_RR", "UDP_RR", "TCP_CRR"} {
		v, err := s.netperf(test)
		for range 3 {
			// The end of TCP_CRR may find a connection half made. The server of a translator has it whole by then, and sees it reset.
			if err == nil || !strings.Contains(err.Error(), "remote error 104") {
				break
			}
			v, err = s.netperf(test)
		}
		if err != nil {
			return err
		}
		s.b.results.add(netnsRow+test, "1/s", s.kind, round, v)
		note("%s%s %s: %.0f/s", netnsRow, test, s.kind, v)
	}
	return nil
}

func (s *netnsBed) netperf(test string) (float64, error) {
	out, err := s.ns.Run(time.Duration(s.b.seconds)*time.Second+40*time.Second,
		s.b.lab.Program("netperf", "-H", netns.ServiceV4, "-4", "-t", test, "-l", fmt.Sprint(s.b.seconds), "-P", "0", "--", "-o", "THROUGHPUT")...)
	if err != nil {
		return 0, err
	}
	v, err := strconv.ParseFloat(lastField(out), 64)
	if err != nil {
		return 0, fmt.Errorf("netperf %s: %w: %s", test, err, out)
	}
	return v, nil
}

// http measures requests per second of clients in the namespace, each on a connection of its own that is kept.
func (s *netnsBed) http(round int) error {
	l, err := s.w.Peer.Listen("tcp", fmt.Sprintf("%s:%d", netns.ServiceV4, httpPort))
	if err != nil {
		return err
	}
	body := make([]byte, 1024)
	server := &http.Server{Handler: http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write(body) })}
	go func() { _ = server.Serve(l) }()
	defer server.Close()
	for _, clients := range []int{1, 8, 32, 128} {
		v, err := s.httpRate(clients)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("%sHTTP, %d clients", netnsRow, clients)
		s.b.results.add(name, "1/s", s.kind, round, v)
		note("%s %s: %.0f/s", name, s.kind, v)
	}
	return nil
}

func (s *netnsBed) httpRate(clients int) (float64, error) {
	t := &http.Transport{MaxIdleConnsPerHost: clients, DialContext: func(_ context.Context, network, addr string) (net.Conn, error) {
		return s.ns.Dial(network, addr)
	}}
	defer t.CloseIdleConnections()
	client := &http.Client{Transport: t, Timeout: 30 * time.Second}
	url := fmt.Sprintf("http://%s:%d/", netns.ServiceV4, httpPort)
	var (
		count  atomic.Int64
		failed atomic.Value
		done   = make(chan struct{})
		wg     sync.WaitGroup
	)
	for range clients {
		wg.Go(func() {
			for {
				r, err := client.Get(url)
				if err != nil {
					failed.Store(err)
					return
				}
				_, _ = io.Copy(io.Discard, r.Body)
				r.Body.Close()
				count.Add(1)
				select {
				case <-done:
					return
				default:
				}
			}
		})
	}
	time.Sleep(500 * time.Millisecond) // connections are made
	before, start := count.Load(), time.Now()
	time.Sleep(time.Duration(s.b.seconds) * time.Second)
	rate := float64(count.Load()-before) / time.Since(start).Seconds()
	close(done)
	wg.Wait()
	if err, _ := failed.Load().(error); err != nil {
		return 0, err
	}
	return rate, nil
}
