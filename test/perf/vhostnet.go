package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
)

// vhostRow begins the names of this part's rows, which stand with those of namespaces.
const vhostRow = netnsRow + "vhost-net in QEMU, "

// vhostSetUp makes the guest a host: a server, an interface for pasta to copy, and a namespace that stays.
const vhostSetUp = `modprobe tun; modprobe vhost_net; modprobe dummy numdummies=0
ip link add out0 type dummy; ip addr add 198.51.100.9/24 dev out0; ip link set out0 up; ip route add default via 198.51.100.1
chmod 777 /run; mkdir -p /run/netns; touch /run/netns/inside
unshare -n sleep 100000 & sleep 1; mount --bind /proc/$!/ns/net /run/netns/inside
iperf3 -s -D; sleep 0.5`

// vhostNet is one round of one daemon inside a QEMU guest, whose kernel has vhost-net: guestwire with and without it. The guest's processor has no fast
// string moves: TCG emulates these a byte at a time, and there would be nothing to measure but copying.
func (b *bench) vhostNet(round int, kind string) error {
	dir, err := b.tempDir("k")
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	programs := []string{"iperf3", "pasta", "pasta.avx2"}
	if kind == backend.Guestwire {
		programs = []string{"iperf3", b.binary}
	}
	initrds, err := b.lab.Initrds(dir, b.prog, programs...)
	if err != nil {
		return err
	}
	c := guest.QEMUConfig{Kernel: b.lab.Vmlinuz(), Initrds: initrds, Dir: dir, Accel: b.accel, MemMiB: 1024, Private: true, Net: []string{"-device", "virtio-net-pci"}}
	c.Wrap, c.Binary, c.Extra, c.Env = b.lab.QEMU()
	c.Extra = append(c.Extra, "-cpu", "max,-erms,-fsrm")
	g, err := guest.StartQEMU(c)
	if err != nil {
		return err
	}
	defer g.Stop()
	if out, err := g.Check(vhostSetUp); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, mtu := range []int{1500, 65520} {
		name := fmt.Sprintf("%sMTU %d", vhostRow, mtu)
		if kind == pasta {
			err = b.vhostWays(g, round, kind, name, fmt.Sprintf("pasta -f -q --runas 0:0 --config-net -m %d -a 10.0.2.15 -n 24 -g 10.0.2.2 --map-host-loopback 10.0.2.2 --netns-only --netns /run/netns/inside", mtu))
		} else {
			run := fmt.Sprintf("%s netns --config-net --mtu %d --map-host-loopback 10.0.2.2 --vhost-kernel ", filepath.Base(b.binary), mtu)
			if err = b.vhostWays(g, round, kind, name, run+"on inside"); err == nil {
				err = b.vhostWays(g, round, kind, name+", off", run+"off inside")
			}
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// vhostWays measures one TCP connection each way between the namespace and the guest's own loopback.
func (b *bench) vhostWays(g *guest.Guest, round int, kind, name, daemon string) error {
	up := daemon + " >/tmp/daemon.log 2>&1 & echo $! >/tmp/daemon.pid; for i in $(seq 100); do nsenter --net=/run/netns/inside ip route | grep -q default && exit 0; sleep 0.1; done; cat /tmp/daemon.log; exit 1"
	if out, err := g.Check(up); err != nil {
		return fmt.Errorf("%w: %s", err, out)
	}
	for _, way := range []struct{ name, arg string }{{"namespace to host", ""}, {"host to namespace", " -R"}} {
		out, err := g.CheckFor(time.Duration(b.seconds)*time.Second+40*time.Second, fmt.Sprintf("nsenter --net=/run/netns/inside iperf3 -J -i 0 -t %d -c 10.0.2.2%s", b.seconds, way.arg))
		if err != nil {
			return err
		}
		var r iperf
		if err := json.Unmarshal([]byte(out), &r); err != nil {
			return fmt.Errorf("iperf3: %w: %.300s", err, out)
		}
		b.results.add(name+", TCP "+way.name, "Gbit/s", kind, round, r.End.Received.Bits/1e9)
		note("%s, TCP %s %s: %.2f Gbit/s", name, way.name, kind, r.End.Received.Bits/1e9)
	}
	_, err := g.Check("kill $(cat /tmp/daemon.pid); while kill -0 $(cat /tmp/daemon.pid) 2>/dev/null; do sleep 0.1; done")
	return err
}
