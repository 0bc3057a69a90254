package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"guestwire/test/harness/lab"
	"guestwire/test/harness/netns"
	"guestwire/test/harness/spawn"
)

// What the guest sees, by default.
const (
	Guest4, Gateway4, DNS4 = "10.0.2.15", "10.0.2.2", "10.0.2.3"
	Guest6, Gateway6, DNS6 = "fd67:7765:7374::15", "fd67:7765:7374::2", "fd67:7765:7374::3"
	Prefix6                = "fd67:7765:7374:"
)

// Kinds of backend.
const (
	Guestwire = "guestwire"
	Passt     = "passt"
)

// Config says which daemon to start and how.
type Config struct {
	Kind   string // Guestwire or Passt
	Binary string // guestwire's
	Stream bool   // -netdev stream instead of vhost-user
	MTU    int    // announced to the guest; 1500 when 0
	TCP    []string
	UDP    []string // forwards, in passt's grammar, which is also guestwire's
	Args   []string // further arguments
	Dir    string
	Socket string // Dir/net.sock when ""
	Env    []string
}

// Daemon is a running backend.
type Daemon struct {
	*spawn.Process
	Config Config
	world  *netns.World
	lab    *lab.Lab
}

// Start starts the daemon in the world's host namespace and waits until it accepts a frontend.
func Start(l *lab.Lab, w *netns.World, c Config) (*Daemon, error) {
	if c.Socket == "" {
		c.Socket = filepath.Join(c.Dir, "net.sock")
	}
	if c.MTU == 0 {
		c.MTU = 1500
	}
	// passt refuses to be root and becomes nobody: that user has to reach the socket's folder.
	if err := os.MkdirAll(c.Dir, 0o777); err != nil {
		return nil, err
	}
	if err := os.Chmod(c.Dir, 0o777); err != nil {
		return nil, err
	}
	d := &Daemon{Config: c, world: w, lab: l}
	return d, d.start()
}

func (d *Daemon) start() error {
	argv, ready := d.guestwire()
	if d.Config.Kind == Passt {
		_ = os.Remove(d.Config.Socket)
		argv, ready = d.passt()
	}
	log := filepath.Join(d.Config.Dir, d.Config.Kind+".log")
	_ = os.Remove(log)
	p, err := spawn.Start(spawn.Options{NS: d.world.Host.Name, Log: log, Env: d.Config.Env}, argv...)
	if err != nil {
		return err
	}
	d.Process = p
	if ready != "" {
		err = p.WaitOutput(ready, 10*time.Second)
	} else {
		err = d.waitSocket()
	}
	if err != nil {
		p.Kill()
	}
	return err
}

func (d *Daemon) guestwire() (argv []string, ready string) {
	c := d.Config
	argv = []string{c.Binary, "net", "--socket-path", c.Socket, "--mtu", fmt.Sprint(c.MTU)}
	if c.Stream {
		argv = append(argv, "--transport", "stream")
	}
	for _, s := range c.TCP {
		argv = append(argv, "-t", s)
	}
	for _, s := range c.UDP {
		argv = append(argv, "-u", s)
	}
	return append(argv, c.Args...), "ready on"
}

// passt's options for the same view of the network.
func (d *Daemon) passt() (argv []string, ready string) {
	c := d.Config
	args := []string{"-f", "-s", c.Socket, "--mtu", fmt.Sprint(c.MTU), "-a", Guest4, "-n", "24", "-g", Gateway4, "-a", Guest6, "-g", Gateway6,
		"--dns-forward", DNS4, "--dns-forward", DNS6, "-D", DNS4, "-D", DNS6, "--map-host-loopback", "none",
		"--dns-host", netns.ServiceV4, "--dns-host", netns.ServiceV6}
	if !c.Stream {
		args = append(args, "--vhost-user")
	}
	for _, s := range c.TCP {
		args = append(args, "-t", s)
	}
	for _, s := range c.UDP {
		args = append(args, "-u", s)
	}
	name := "passt"
	if hasAVX2() {
		name = "passt.avx2"
	}
	return d.lab.Program(name, append(args, c.Args...)...), ""
}

func hasAVX2() bool {
	b, _ := os.ReadFile("/proc/cpuinfo")
	return containsWord(string(b), "avx2")
}

// waitSocket waits for the socket file of a daemon that does not say when it is ready.
func (d *Daemon) waitSocket() error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end); time.Sleep(10 * time.Millisecond) {
		if _, err := os.Stat(d.Config.Socket); err == nil {
			return nil
		}
		if d.Exited() {
			break
		}
	}
	return fmt.Errorf("%s made no socket:\n%s", d.Config.Kind, d.Tail(20))
}

// Restart ends the daemon and starts it again at the same socket.
func (d *Daemon) Restart() error {
	if err := d.Stop(5 * time.Second); err != nil && d.Config.Kind == Guestwire {
		return fmt.Errorf("orderly stop: %w\n%s", err, d.Tail(20))
	}
	return d.start()
}
