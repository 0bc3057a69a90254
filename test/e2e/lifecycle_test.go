package e2e

import (
	"fmt"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/traffic"
)

// quick shows that the network works: a lease has been taken, and bytes go both ways over both families.
func (e *env) quick(t *testing.T) {
	t.Helper()
	for _, f := range families {
		e.sh(t, fmt.Sprintf("guestprog get %s 3000000 11 && guestprog put %s 3000000 12", service(f.addr), service(f.addr)))
		e.sh(t, "guestprog udp-sizes "+service(f.addr)+" 100 1400")
	}
}

// openUpload starts a connection that lasts; the server notes under key how it ended.
func (e *env) openUpload(t *testing.T, key string) {
	t.Helper()
	cmd := fmt.Sprintf("(echo hold %s; sleep 1000) | nc %s 7777", key, netns.ServiceV4)
	if e.g.Name == "uml" {
		cmd = fmt.Sprintf("(echo hold %s; sleep 1000) | ncat %s 7777", key, netns.ServiceV4)
	}
	if _, err := e.g.Start(2*time.Minute, cmd); err != nil {
		t.Fatal(err)
	}
	time.Sleep(500 * time.Millisecond)
}

func testReboot(t *testing.T, e *env) {
	e.configure(t)
	e.quick(t)
	e.openUpload(t, "before-reboot")
	if err := e.g.Reboot(); err != nil {
		t.Fatal(err)
	}
	e.configure(t)
	e.quick(t)
	// The connection of the guest's former life must not stay: its peer is told.
	if got := e.svc.Traffic.Result("before-reboot", 20*time.Second); !passt() && got != "reset" && got != "eof" {
		t.Errorf("the peer of a connection from before the reboot saw %q, want its end", got)
	}
}

func TestUMLReboot(t *testing.T)  { testReboot(t, newEnv(t, setup{uml: true})) }
func TestQEMUReboot(t *testing.T) { testReboot(t, newEnv(t, setup{})) }

// A frontend leaves and another comes: the daemon goes on, for the same or another kind of guest, and passes nothing of the first to the second.
func TestFrontendLeavesAndReturns(t *testing.T) {
	e := newEnv(t, setup{uml: true, profile: "generic"})
	for round := range 3 {
		e.configure(t)
		e.quick(t)
		if round < 2 {
			e.openUpload(t, fmt.Sprint("round-", round))
		}
		e.g.Stop() // as when a VMM crashes
		if e.d.Exited() {
			t.Fatalf("the daemon left with its frontend:\n%s", e.d.Tail(20))
		}
		if round == 2 {
			break
		}
		e.boot(setup{uml: round == 1})
		e.sh(t, "ip link set eth0 up")
		// While nobody is there the flows may wait for a reconnect, but another guest is the end of them.
		if got := e.svc.Traffic.Result(fmt.Sprint("round-", round), 20*time.Second); !passt() && got != "reset" && got != "eof" {
			t.Errorf("round %d: the peer of a connection of a guest that is gone saw %q, want its end", round, got)
		}
	}
}

// The daemon is restarted under a running guest: QEMU's chardev connects again, the guest keeps its address and goes on without a reboot.
func TestQEMUDaemonRestart(t *testing.T) {
	e := newEnv(t, setup{})
	e.configure(t)
	e.quick(t)
	for round := range 2 {
		if err := e.d.Restart(); err != nil {
			t.Fatal(err)
		}
		e.sh(t, "for i in $(seq 60); do ping -c 1 -W 1 "+netns.ServiceV4+" >/dev/null && exit 0; sleep 0.5; done; echo no answer after the restart; exit 1")
		e.quick(t)
		t.Logf("round %d: back", round)
	}
}

// The link goes down and up under a driver that is unbound and bound again: rings are stopped and started, features negotiated anew.
func TestQEMUDriverRebind(t *testing.T) {
	e := newEnv(t, setup{})
	e.configure(t)
	for range 2 {
		e.sh(t, "dev=$(basename $(readlink /sys/class/net/eth0/device)); cd /sys/bus/virtio/drivers/virtio_net && echo $dev > unbind && sleep 0.2 && echo $dev > bind && sleep 0.3; ip link")
		e.configure(t)
		e.quick(t)
	}
}

// Memory is added while traffic runs: the daemon gets a new memory table and goes on.
func TestQEMUMemoryHotplug(t *testing.T) {
	e := newEnv(t, setup{hotplug: true})
	e.configure(t)
	e.quick(t)
	total := func() int {
		n, err := strconv.Atoi(e.sh(t, "awk '/MemTotal/{print $2}' /proc/meminfo"))
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := total()
	job, err := e.g.Start(2*time.Minute, fmt.Sprintf("guestprog get %s 80000000 21", service(netns.ServiceV4)))
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		id := fmt.Sprint("dimm", i)
		size := 256 << 20
		if _, err := e.g.QMP.Do("object-add", map[string]any{"qom-type": "memory-backend-memfd", "id": "mem-" + id, "size": size, "share": true}); err != nil {
			t.Fatal(err)
		}
		if _, err := e.g.QMP.Do("device_add", map[string]any{"driver": "pc-dimm", "id": id, "memdev": "mem-" + id}); err != nil {
			t.Fatal(err)
		}
		time.Sleep(500 * time.Millisecond)
	}
	e.sh(t, "for m in /sys/devices/system/memory/memory*; do grep -q offline $m/state && echo online_kernel > $m/state; done; true")
	if out, exit, err := job.Wait(); err != nil || exit != 0 {
		t.Errorf("the download during the change: exit %d, %v: %s", exit, err, out)
	}
	if after := total(); after < before+(400<<10) {
		t.Fatalf("the guest's memory grew from %d to %d KiB only", before, after)
	}
	// Fill the memory that was there first, so that network buffers come to lie in the new one.
	e.sh(t, fmt.Sprintf("mkdir -p /tmp/fill && head -c %dk /dev/zero > /tmp/fill/zero; ls -l /tmp/fill", before/2))
	e.quick(t)
	e.shFor(t, 3*time.Minute, fmt.Sprintf("guestprog get %s %d 22 && guestprog put %s %d 23", service(netns.ServiceV4), bulk/4, service(netns.ServiceV6), bulk/4))
}

// testpmd drives the rings without a guest. In both directions it must see packets go: what it sends is consumed, and what comes for it arrives.
func TestTestPMD(t *testing.T) {
	for _, row := range []struct {
		name   string
		device []string
	}{
		{"plain", []string{"mrg_rxbuf=0", "in_order=0"}},
		{"mergeable in order", []string{"mrg_rxbuf=1", "in_order=1", "queue_size=1024"}},
		{"vectorized", []string{"mrg_rxbuf=0", "in_order=1", "vectorized=1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEnv(t, setup{noGuest: true})
			u, err := e.w.Peer.ListenUDP(netns.ServiceV4 + ":9")
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			for round := range 2 { // the second is a reconnect
				p, err := shared.lab.StartTestPMD(lab.TestPMDConfig{Socket: e.d.Config.Socket, Device: append([]string{"mac=" + guest.MAC}, row.device...), Forward: "txonly",
					Args: []string{"--eth-peer=0,52:55:0a:00:02:02", "--tx-ip=10.0.2.15," + netns.ServiceV4, "--tx-udp=1234,9", "--txpkts=256"},
					Log:  filepath.Join(e.dir, fmt.Sprintf("testpmd-%d.log", round))})
				if err != nil {
					t.Fatal(err)
				}
				b := make([]byte, 2048)
				_ = u.SetReadDeadline(time.Now().Add(20 * time.Second))
				for got := 0; got < 1000; got++ {
					if _, err := u.Read(b); err != nil {
						lab.StopTestPMD(p)
						t.Fatalf("round %d: %d datagrams arrived, then %v\n%s", round, got, err, p.Tail(30))
					}
				}
				out := lab.StopTestPMD(p)
				if sent := testpmdTotal(out, "TX-packets"); sent < 1000 {
					t.Errorf("round %d: testpmd counts %d sent packets\n%s", round, sent, p.Tail(40))
				}
				if e.d.Exited() {
					t.Fatal("the daemon left with testpmd")
				}
			}
		})
	}
}

// In its 5tswap mode testpmd sends back what it gets with both ends exchanged: an echo server of one process, reached through the forward. The burst that it
// sends first tells the daemon its hardware address.
func TestTestPMDEcho(t *testing.T) {
	for _, row := range []struct {
		name   string
		device []string
	}{
		{"plain", []string{"mrg_rxbuf=0", "in_order=0"}},
		{"mergeable in order", []string{"mrg_rxbuf=1", "in_order=1"}},
	} {
		t.Run(row.name, func(t *testing.T) {
			e := newEnv(t, setup{noGuest: true})
			p, err := shared.lab.StartTestPMD(lab.TestPMDConfig{Socket: e.d.Config.Socket, Device: append([]string{"mac=" + guest.MAC}, row.device...), Forward: "5tswap",
				Args: []string{"--tx-first", "--tx-ip=10.0.2.15," + netns.ServiceV4, "--tx-udp=1234,9", "--eth-peer=0,52:55:0a:00:02:02"},
				Log:  filepath.Join(e.dir, "testpmd.log")})
			if err != nil {
				t.Fatal(err)
			}
			defer p.Kill()
			if err := p.WaitOutput("Port statistics", 20*time.Second); err != nil {
				t.Fatal(err)
			}
			time.Sleep(500 * time.Millisecond) // the burst is on its way
			u, err := e.w.Peer.Dial("udp", fmt.Sprintf("%s:%d", netns.HostV4, forwardPort))
			if err != nil {
				t.Fatal(err)
			}
			defer u.Close()
			for i := range 20 {
				if err := traffic.EchoSizes(u, []int{1 + i, 500 + i, 1472 - i}); err != nil {
					t.Fatalf("round %d: %v\n%s", i, err, p.Tail(12))
				}
			}
		})
	}
}

// testpmdTotal is the largest value of a counter in testpmd's periodic statistics.
func testpmdTotal(out, name string) (n int) {
	for _, f := range strings.Split(out, name+":")[1:] {
		if fields := strings.Fields(f); len(fields) > 0 {
			if v, err := strconv.Atoi(fields[0]); err == nil {
				n = max(n, v)
			}
		}
	}
	return n
}
