package main

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"

	"guestwire/test/harness/spawn"
)

// Ports of the two services that are reached by vsock.
const (
	guestPort = 1024
	hostPort  = 2000
)

// toGuest reaches a service in the VM from the host: one line of shell on each side.
func (d *demo) toGuest() error {
	if _, err := d.in(fmt.Sprintf("guestwire bridge vsock-listen:%d exec:'uname -sr' 2>/dev/null &", guestPort)); err != nil {
		return err
	}
	out, err := d.onHost(fmt.Sprintf("guestwire bridge stdio uds:vm.vsock:%d,wait=5s", guestPort))
	if err != nil {
		return err
	}
	tell(out)
	return wants(out, "Linux "+d.lab.KernelVersion())
}

// toHost reaches a service of the host from the VM.
func (d *demo) toHost() error {
	const line, greeting = "guestwire bridge unix-listen:vm.vsock_%d exec:'echo greetings from the host'", "greetings from the host"
	fmt.Printf("   host$ "+line+" &\n", hostPort)
	p, err := spawn.Start(spawn.Options{Dir: filepath.Dir(d.vsock)}, "sh", "-c", "exec "+d.onPath(fmt.Sprintf(line, hostPort)))
	if err != nil {
		return err
	}
	d.later(p.Kill)
	if err := p.WaitOutput("ready", 5*time.Second); err != nil {
		return err
	}
	out, err := d.in(fmt.Sprintf("guestwire bridge stdio vsock-connect:2:%d </dev/null", hostPort))
	if err != nil {
		return err
	}
	tell(out)
	return wants(out, greeting)
}

// onHost runs a command beside the VM's sockets, shows it, and returns what it printed.
func (d *demo) onHost(command string) (string, error) {
	fmt.Printf("   host$ %s\n", command)
	c := exec.Command("timeout", "20", "sh", "-c", d.onPath(command))
	c.Dir, c.Stderr = filepath.Dir(d.vsock), os.Stderr
	out, err := c.Output()
	if err != nil {
		return string(out), fmt.Errorf("%w: %s", err, strings.TrimSpace(string(out)))
	}
	return string(out), nil
}

// onPath is command with the guestwire that was built.
func (d *demo) onPath(command string) string {
	return strings.Replace(command, "guestwire", d.binary, 1)
}
