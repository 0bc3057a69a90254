// Shell boots a guest connected by guestwire (or passt) and runs the commands that it reads from standard input inside it: for looking at things by hand.
//
//	shell [-guest uml|qemu] [-kind guestwire|passt] [-stream] [-mtu N] [-binary PATH] [-t SPEC] [-u SPEC] [ARGUMENTS OF THE DAEMON...]
//
// A line is run in the guest; one that starts with "!" on the host side, in the peer's namespace; with "!!" in the daemon's. "stats" prints the daemon's counters.
package main

import (
	"bufio"
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/guest"
	"guestwire/test/harness/hostsvc"
	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
)

type options struct {
	guest, kind, binary, tcp, udp string
	stream                        bool
	mtu                           int
}

func main() {
	var o options
	flag.StringVar(&o.guest, "guest", "uml", "uml or qemu")
	flag.StringVar(&o.kind, "kind", backend.Guestwire, "guestwire or passt")
	flag.StringVar(&o.binary, "binary", "", "guestwire binary instead of a fresh build")
	flag.StringVar(&o.tcp, "t", "18080:7777", "TCP forward")
	flag.StringVar(&o.udp, "u", "18080:7777", "UDP forward")
	flag.BoolVar(&o.stream, "stream", false, "-netdev stream (QEMU)")
	flag.IntVar(&o.mtu, "mtu", 1500, "announced MTU")
	flag.Parse()
	if err := run(o); err != nil {
		fmt.Fprintf(os.Stderr, "shell: %v\n", err)
		os.Exit(1)
	}
}

func run(o options) error {
	l, err := lab.Prepare(lab.Tree|lab.Kernel, os.Stderr)
	if err != nil {
		return err
	}
	dir, err := os.MkdirTemp("", "guestwire-shell-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	if err := os.Chmod(dir, 0o755); err != nil {
		return err
	}
	if o.binary == "" && o.kind == backend.Guestwire {
		if o.binary, err = l.Build(dir, "./cmd/guestwire"); err != nil {
			return err
		}
	}
	w, err := netns.New()
	if err != nil {
		return err
	}
	defer w.Close()
	svc, err := hostsvc.Start(w)
	if err != nil {
		return err
	}
	defer svc.Close()
	for _, argv := range [][]string{l.Program("iperf3", "-s"), l.Program("netserver", "-D")} {
		p, err := spawn.Start(spawn.Options{NS: w.Peer.Name}, argv...)
		if err != nil {
			return err
		}
		defer p.Kill()
	}
	d, err := backend.Start(l, w, backend.Config{Kind: o.kind, Binary: o.binary, Stream: o.stream, MTU: o.mtu, Dir: filepath.Join(dir, "d"),
		TCP: []string{o.tcp}, UDP: []string{o.udp}, Args: flag.Args()})
	if err != nil {
		return err
	}
	defer d.Kill()
	g, err := boot(l, o, dir, d.Config.Socket)
	if err != nil {
		return fmt.Errorf("%w\n%s", err, d.Tail(30))
	}
	defer g.Stop()
	out, _ := g.Run("ip link set eth0 up; udhcpc -i eth0 -n -q -t 10 -T 1 -O mtu; guestprog serve 7777 >/dev/null 2>&1 & sleep 4; ip addr show eth0")
	fmt.Print(out)
	loop(w, d, g)
	return nil
}

func boot(l *lab.Lab, o options, dir, socket string) (*guest.Guest, error) {
	prog, err := l.Build(dir, "./test/harness/guestprog")
	if err != nil {
		return nil, err
	}
	gdir := filepath.Join(dir, "guest")
	if err := os.MkdirAll(gdir, 0o755); err != nil {
		return nil, err
	}
	if o.guest == "uml" {
		return guest.StartUML(guest.UMLConfig{Kernel: l.UML(), Tree: l.Tree(), Prog: prog, Dir: gdir, Sockets: []string{socket}})
	}
	initrds, err := l.Initrds(dir, prog, "iperf3")
	if err != nil {
		return nil, err
	}
	c := guest.QEMUConfig{Kernel: l.Vmlinuz(), Initrds: initrds, Dir: gdir, Accel: l.Accel(), Net: guest.VhostUser(socket)}
	if o.stream {
		c.Net, c.Private = guest.Stream(socket), true
	}
	return guest.StartQEMU(c)
}

func loop(w *netns.World, d *backend.Daemon, g *guest.Guest) {
	shown := 0
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		line := strings.TrimSpace(in.Text())
		switch {
		case line == "stats":
			_, err := d.Stats()
			fmt.Println(err)
		case strings.HasPrefix(line, "!!"):
			out, err := w.Host.Run(time.Minute, "sh", "-c", line[2:])
			fmt.Print(out, err, "\n")
		case strings.HasPrefix(line, "!"):
			out, err := w.Peer.Run(time.Minute, "sh", "-c", line[1:])
			fmt.Print(out, err, "\n")
		case line != "":
			out, exit := g.RunFor(5*time.Minute, line)
			fmt.Printf("%s[exit %d]\n", out, exit)
		}
		if log := d.Output(); len(log) > shown {
			fmt.Printf("--- daemon:\n%s---\n", log[shown:])
			shown = len(log)
		}
	}
}
