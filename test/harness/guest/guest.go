package guest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/agent"
	"guestwire/test/harness/spawn"
)

// Deadlines. A boot takes 2 to 4 seconds on a quiet machine; a loaded one gets ten times that.
const (
	BootTimeout    = 90 * time.Second
	CommandTimeout = 60 * time.Second
)

// Guest is a running guest.
type Guest struct {
	Name string // "uml" or "qemu"
	Dir  string // its files: console.log, sockets
	QMP  *QMP   // QEMU only
	proc *spawn.Process
	line io.Closer
	c    *agent.Client
	boot string
	has  devices
}

// devices are what a guest was given: it is up when their drivers are.
type devices struct{ net, vsock bool }

// Run runs a shell command in the guest and returns what it printed and its exit code; -1 means that the guest did not answer.
func (g *Guest) Run(command string) (string, int) { return g.RunFor(CommandTimeout, command) }

// RunFor is Run with a time limit.
func (g *Guest) RunFor(limit time.Duration, command string) (string, int) {
	out, exit, err := g.c.Run(command, limit)
	if err != nil {
		return fmt.Sprintf("%s%v", out, err), -1
	}
	return out, exit
}

// Check is Run for a command that must succeed.
func (g *Guest) Check(command string) (string, error) { return g.CheckFor(CommandTimeout, command) }

// CheckFor is Check with a time limit.
func (g *Guest) CheckFor(limit time.Duration, command string) (string, error) {
	out, exit := g.RunFor(limit, command)
	if exit != 0 {
		return out, fmt.Errorf("%s guest: %s: exit %d: %s", g.Name, command, exit, strings.TrimSpace(out))
	}
	return out, nil
}

// Start starts a command and does not wait for it.
func (g *Guest) Start(limit time.Duration, command string) (*agent.Job, error) {
	return g.c.Start(command, limit)
}

// Reboot restarts the guest and waits until it is back with its network driver loaded.
func (g *Guest) Reboot() error {
	if _, err := g.c.Start("sync; echo b > /proc/sysrq-trigger", 10*time.Second); err != nil {
		return err
	}
	return g.ready()
}

func (g *Guest) waitBoot() error {
	id, err := g.c.WaitHello(BootTimeout)
	if err != nil {
		return fmt.Errorf("%s guest: %w\n%s", g.Name, err, g.Console(40))
	}
	if id == g.boot {
		return fmt.Errorf("%s guest: the agent restarted without a reboot", g.Name)
	}
	g.boot = id
	return nil
}

// Exited tells whether the machine has ended.
func (g *Guest) Exited() bool { return g.proc.Exited() }

// PID is the machine's process.
func (g *Guest) PID() int { return g.proc.PID() }

// Wait waits for the machine to end by itself.
func (g *Guest) Wait(timeout time.Duration) error { return g.proc.Wait(timeout) }

// Stop ends the machine at once; there is nothing in it to save.
func (g *Guest) Stop() {
	if g == nil {
		return
	}
	g.proc.Kill()
	if g.QMP != nil {
		g.QMP.Close()
	}
	if g.line != nil {
		g.line.Close()
	}
}

// PowerOff asks the guest to end and waits for it.
func (g *Guest) PowerOff() error {
	_, _ = g.c.Start("sync; echo o > /proc/sysrq-trigger", 10*time.Second)
	err := g.proc.Wait(20 * time.Second)
	g.Stop()
	return err
}

// Console is the end of what the guest printed on its console.
func (g *Guest) Console(lines int) string { return strings.ReplaceAll(g.proc.Tail(lines), "\r", "") }

// ready prepares the guest for its tests: the drivers have found their devices.
func (g *Guest) ready() error {
	if err := g.waitBoot(); err != nil {
		return err
	}
	there := "true"
	if g.has.net {
		there += " && [ -e /sys/class/net/eth0 ]"
	}
	if g.has.vsock { // probing takes the CID from the device
		there += " && ls /sys/bus/virtio/drivers/vmw_vsock_virtio_transport/virtio* >/dev/null 2>&1"
	}
	_, err := g.Check("for i in $(seq 100); do " + there + " && exit 0; sleep 0.1; done; echo missing: " + Quote(there) + "; dmesg | tail -20; exit 1")
	if err != nil {
		return fmt.Errorf("%w\n%s", err, g.Console(40))
	}
	return nil
}

func logFile(dir, name string) (string, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return "", err
	}
	path := filepath.Join(dir, name)
	_ = os.Remove(path) // of a run before this one
	return path, nil
}
