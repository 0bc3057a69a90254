// Demo shows guestwire at work: it boots a real VM under QEMU, started by `guestwire run`, and goes with it through lease, ping, DNS, IPv6, a download from a
// service of the host, a port forward into the VM, vsock both ways and the throughput both ways. It ends with 0 only if every step held.
//
// Host and network are namespaces made for the purpose (package netns): nothing of the machine's own network is touched or needed.
package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
)

func main() {
	d := &demo{start: time.Now()}
	err := d.run()
	d.cleanUp()
	if err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %v\n", err)
		os.Exit(1)
	}
	if d.failed > 0 {
		fmt.Printf("\n%d of %d steps failed\n", d.failed, d.step)
		os.Exit(1)
	}
	fmt.Printf("\nAll %d steps held, in %.0f s.\n", d.step, time.Since(d.start).Seconds())
}

// demo is one showing.
type demo struct {
	start        time.Time
	step, failed int
	lab          *lab.Lab
	w            *netns.World
	g            *guest.Guest
	closers      []func()
	binary       string // guestwire
	vsock        string // UNIX socket that leads to the VM's vsock ports
}

func (d *demo) later(f func()) { d.closers = append(d.closers, f) }

func (d *demo) cleanUp() {
	for i := len(d.closers) - 1; i >= 0; i-- {
		d.closers[i]()
	}
}

func (d *demo) run() (err error) {
	if d.lab, err = lab.Prepare(lab.Tree|lab.Kernel, os.Stdout); err != nil {
		return err
	}
	d.start = time.Now() // downloads do not count
	dir, err := os.MkdirTemp("", "guestwire-demo-")
	if err != nil {
		return err
	}
	d.later(func() { os.RemoveAll(dir) })
	binary, err := d.lab.Build(dir, "./cmd/guestwire")
	if err != nil {
		return err
	}
	prog, err := d.lab.Build(dir, "./test/harness/guestprog")
	if err != nil {
		return err
	}
	initrds, err := d.lab.Initrds(dir, prog, "iperf3", binary)
	if err != nil {
		return err
	}
	if d.w, err = netns.New(); err != nil {
		return err
	}
	d.later(d.w.Close)
	dns, err := hostsvc.StartDNS(d.w.Peer, netns.ServiceV4, netns.ServiceV6)
	if err != nil {
		return err
	}
	d.later(dns.Close)
	d.binary, d.vsock = binary, filepath.Join(dir, "vm.vsock")
	if err := d.boot(dir, binary, initrds); err != nil {
		return err
	}
	for _, s := range []struct {
		title string
		show  func() error
	}{
		{"The VM asks for an address: DHCP", d.lease},
		{"It pings the gateway and a machine on the network", d.ping},
		{"It resolves names through the host's resolver", d.names},
		{"It has IPv6 as well: router advertisement, ping, DNS", d.ipv6},
		{"It downloads a file from a service on the host's loopback", d.download},
		{"The host reaches a web server in the VM through a port forward", d.forward},
		{"A process of the host reaches a service in the VM by vsock, through a UNIX socket", d.toGuest},
		{"The VM reaches a service of the host by vsock, through another", d.toHost},
		{"Throughput, VM to network and back (iperf3)", d.throughput},
	} {
		d.show(s.title, s.show)
	}
	return nil
}

// show runs one step and says how it went.
func (d *demo) show(title string, f func() error) {
	d.step++
	fmt.Printf("\n%d. %s\n", d.step, title)
	if err := f(); err != nil {
		d.failed++
		fmt.Printf("   FAILED: %v\n", err)
		return
	}
	fmt.Println("   ok")
}

func (d *demo) boot(dir, binary string, initrds []string) error {
	accel := d.lab.Accel()
	with := "KVM"
	if accel == "tcg" {
		with = "TCG emulation: no usable KVM on this machine, so the VM's own CPU is slow"
	}
	wrap := []string{binary, "run", "-t", "8080:80", "--map-host-loopback", "10.0.2.2", "--uds-path", d.vsock, "--"}
	fmt.Printf("\nA VM with Linux %s under QEMU (%s), its network card and its vsock device connected by\n\n   guestwire run -t 8080:80 --map-host-loopback 10.0.2.2 --uds-path vm.vsock -- qemu-system-x86_64 -m 512 -kernel vmlinuz ...\n\n",
		d.lab.KernelVersion(), with)
	gdir := filepath.Join(dir, "vm")
	if err := os.MkdirAll(gdir, 0o755); err != nil {
		return err
	}
	start := time.Now()
	g, err := guest.StartQEMU(guest.QEMUConfig{Kernel: d.lab.Vmlinuz(), Initrds: initrds, Dir: gdir, Accel: accel, Wrap: wrap, Private: true, NS: d.w.Host.Name})
	if err != nil {
		return err
	}
	d.g = g
	d.later(func() {
		if d.failed > 0 {
			fmt.Printf("\n--- the VM's console and guestwire's messages:\n%s\n", g.Console(30))
		}
		g.Stop()
	})
	fmt.Printf("   booted in %.1f s\n", time.Since(start).Seconds())
	return nil
}

// in runs a command in the VM, shows it, and returns what it printed.
func (d *demo) in(command string) (string, error) {
	fmt.Printf("   vm# %s\n", command)
	out, exit := d.g.Run(command)
	if exit != 0 {
		return out, fmt.Errorf("exit %d: %s", exit, strings.TrimSpace(out))
	}
	return out, nil
}

// tell prints the lines of a command's output that contain one of the words; all when none is given.
func tell(out string, words ...string) {
	for line := range strings.SplitSeq(strings.TrimSpace(out), "\n") {
		show := len(words) == 0
		for _, w := range words {
			show = show || strings.Contains(line, w)
		}
		if show {
			fmt.Printf("       %s\n", strings.TrimSpace(line))
		}
	}
}
