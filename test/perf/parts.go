package main

import (
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
)

// uml is one round of one daemon with User Mode Linux.
func (b *bench) uml(round int, kind string) error {
	for _, mtu := range []int{1500, 65520} {
		h := how{kind: kind, uml: true, mtu: mtu}
		s, err := b.lay(h)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("UML, MTU %d", mtu)
		err = b.boot(s, h)
		if err == nil {
			err = b.tcp(s, round, name, kind)
		}
		if err == nil && mtu == 1500 {
			if err = b.udp(s, round, name, kind); err == nil {
				err = b.requests(s, round, name, kind)
			}
		}
		if err == nil {
			err = b.idle(s, round, name, kind)
		}
		s.clear()
		if err != nil {
			return err
		}
	}
	return nil
}

// idle looks at a daemon whose guest does nothing: what it costs to wait.
func (b *bench) idle(s *bed, round int, name, kind string) error {
	before, err := s.d.CPU()
	if err != nil {
		return err
	}
	time.Sleep(2 * time.Second)
	after, err := s.d.CPU()
	if err != nil {
		return err
	}
	b.results.add(name+", daemon idle", "% CPU", kind, round, (after-before).Seconds()/2*100)
	if rss, err := s.d.Status("RssAnon"); err == nil {
		b.results.add(name+", daemon after the load, RssAnon", "MiB", kind, round, float64(rss)/1024)
	}
	return nil
}

// qemu is one round of one daemon with QEMU, over both of its transports.
func (b *bench) qemu(round int, kind string) error {
	for _, stream := range []bool{false, true} {
		transport := "vhost-user"
		if stream {
			transport = "stream"
		}
		h := how{kind: kind, stream: stream, mtu: 1500}
		s, err := b.lay(h)
		if err != nil {
			return err
		}
		name := fmt.Sprintf("QEMU/%s, %s", strings.ToUpper(b.accel), transport)
		err = b.boot(s, h)
		if err == nil {
			err = b.tcp(s, round, name, kind)
		}
		if err == nil {
			err = b.udp(s, round, name, kind)
		}
		s.clear()
		if err != nil {
			return err
		}
	}
	return nil
}

// testpmd is one round of one daemon with DPDK's virtio-user as a sender. Its flowgen engine has its addresses built in: source 10.254.0.0, destinations
// counting up from 10.253.0.0, so the guest gets that address and the peer that network.
func (b *bench) testpmd(round int, kind string) error {
	for _, flows := range []int{1, 1000} {
		args := []string{"--address", "10.254.0.0/8", "--gateway", "10.0.2.2", "--dns-forward", "10.0.2.3"}
		if kind == backend.Passt {
			args = []string{"-a", "10.254.0.0", "-n", "8", "-g", "10.0.2.2"}
		}
		s, err := b.lay(how{kind: kind, args: args})
		if err != nil {
			return err
		}
		err = b.flood(s, round, kind, flows)
		s.clear()
		if err != nil {
			return err
		}
	}
	return nil
}

func (b *bench) flood(s *bed, round int, kind string, flows int) error {
	for _, c := range [][]string{{"ip", "route", "add", "local", "10.253.0.0/16", "dev", "lo"}} {
		if _, err := s.w.Peer.Run(5*time.Second, c...); err != nil {
			return err
		}
	}
	const port = 1001 // flowgen's destination port; txonly is told to use it
	counter, err := newCounter(s.w.Peer, port)
	if err != nil {
		return err
	}
	defer counter.close()
	c := lab.TestPMDConfig{Socket: s.d.Config.Socket, Device: []string{"mac=52:54:00:12:34:56", "queue_size=1024"}, Forward: "txonly", Log: filepath.Join(s.dir, "testpmd.log"),
		Args: []string{"--eth-peer=0,52:55:0a:00:02:02", "--tx-ip=10.254.0.0," + netns.ServiceV4, fmt.Sprintf("--tx-udp=1000,%d", port), "--txpkts=1442"}}
	if flows > 1 {
		c.Forward = "flowgen"
		c.Args = []string{"--eth-peer=0,52:55:0a:00:02:02", "--txpkts=1442", fmt.Sprintf("--flowgen-flows=%d", flows)}
	}
	p, err := b.lab.StartTestPMD(c)
	if err != nil {
		return err
	}
	defer p.Kill()
	if err := counter.wait(20 * time.Second); err != nil {
		return fmt.Errorf("%w\n%s\n--- daemon:\n%s", err, p.Tail(20), s.d.Tail(10))
	}
	time.Sleep(time.Second)
	before, start := counter.n.Load(), time.Now()
	time.Sleep(time.Duration(b.seconds) * time.Second)
	rate := float64(counter.n.Load()-before) / time.Since(start).Seconds()
	name := fmt.Sprintf("testpmd, 1,400 B datagrams, %d flow", flows)
	if flows > 1 {
		name += "s"
	}
	b.results.add(name, "kpps", kind, round, rate/1e3)
	note("%s %s: %.1f kpps", name, kind, rate/1e3)
	return nil
}
