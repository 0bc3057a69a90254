package backend

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/lab"
	"guestwire/test/harness/spawn"
)

// VhostDeviceVSock is the peer that guestwire's vsock device is compared with.
const VhostDeviceVSock = "vhost-device-vsock"

// VSockConfig says which vsock device to start and for which guests. Both kinds have the same options.
type VSockConfig struct {
	Kind   string // Guestwire or VhostDeviceVSock
	Binary string // guestwire's
	Dir    string
	CIDs   []uint32 // one guest each; more than one are siblings
	Args   []string // further arguments
}

// VSock is a running vsock device.
type VSock struct {
	*spawn.Process
	Config VSockConfig
	lab    *lab.Lab
}

// Socket is where guest i's frontend connects, Path where the host's clients do; a guest's own connections to port N arrive at Path_N.
func (v *VSock) Socket(i int) string {
	return filepath.Join(v.Config.Dir, fmt.Sprintf("vhost%d.sock", i))
}
func (v *VSock) Path(i int) string { return filepath.Join(v.Config.Dir, fmt.Sprintf("vm%d.vsock", i)) }

// StartVSock starts the daemon and waits until it accepts frontends.
func StartVSock(l *lab.Lab, c VSockConfig) (*VSock, error) {
	if err := os.MkdirAll(c.Dir, 0o755); err != nil {
		return nil, err
	}
	v := &VSock{Config: c, lab: l}
	return v, v.start()
}

func (v *VSock) start() error {
	log := filepath.Join(v.Config.Dir, v.Config.Kind+"-vsock.log")
	_ = os.Remove(log)
	argv := v.command()
	if v.Config.Kind == VhostDeviceVSock { // it does not look whether its sockets are there
		for i := range v.Config.CIDs {
			_, _ = os.Remove(v.Socket(i)), os.Remove(v.Path(i))
		}
	}
	p, err := spawn.Start(spawn.Options{Log: log}, argv...)
	if err != nil {
		return err
	}
	v.Process = p
	if v.Config.Kind == Guestwire {
		err = p.WaitOutput("ready on", 10*time.Second)
	} else {
		err = v.waitSockets()
	}
	if err != nil {
		p.Kill()
	}
	return err
}

func (v *VSock) command() []string {
	c := v.Config
	argv := []string{c.Binary, "vsock"}
	if c.Kind == VhostDeviceVSock {
		argv = []string{filepath.Join(v.lab.Tree(), "usr/bin", VhostDeviceVSock)}
	}
	if len(c.CIDs) == 1 {
		argv = append(argv, "--guest-cid", fmt.Sprint(c.CIDs[0]), "--socket", v.Socket(0), "--uds-path", v.Path(0))
	} else {
		for i, cid := range c.CIDs {
			argv = append(argv, "--vm", fmt.Sprintf("guest-cid=%d,socket=%s,uds-path=%s,groups=default", cid, v.Socket(i), v.Path(i)))
		}
	}
	return append(argv, c.Args...)
}

func (v *VSock) waitSockets() error {
	for end := time.Now().Add(10 * time.Second); time.Now().Before(end) && !v.Exited(); time.Sleep(10 * time.Millisecond) {
		there := true
		for i := range v.Config.CIDs {
			_, err := os.Stat(v.Socket(i))
			there = there && err == nil
		}
		if there {
			return nil
		}
	}
	return fmt.Errorf("%s made no socket:\n%s", strings.Join(v.command(), " "), v.Tail(20))
}

// Restart ends the daemon and starts it again at the same sockets.
func (v *VSock) Restart() error {
	if err := v.Stop(5 * time.Second); err != nil && v.Config.Kind == Guestwire {
		return fmt.Errorf("orderly stop: %w\n%s", err, v.Tail(20))
	}
	return v.start()
}

// Stats are guestwire's counters.
func (v *VSock) Stats() (map[string]int64, error) { return counters(v.Process, v.Config.Kind) }
