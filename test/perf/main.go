package main

import (
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"

	"guestwire/test/harness/backend"
	"guestwire/test/harness/lab"
)

// bench is one run.
type bench struct {
	lab             *lab.Lab
	dir             string
	binary, prog    string
	initrds         []string
	accel           string
	rounds, seconds int
	results         results
}

func main() {
	b := &bench{results: results{}}
	only := flag.String("only", "uml,qemu,testpmd,vsock,netns,vhostnet,redirect", "parts to run")
	kinds := flag.String("kinds", backend.Guestwire+",peer", "daemons to measure; peer is passt, vhost-device-vsock for vsock, pasta for netns")
	flag.IntVar(&b.rounds, "rounds", 5, "rounds of each part")
	flag.IntVar(&b.seconds, "seconds", 4, "length of one measurement")
	flag.StringVar(&b.binary, "binary", "", "guestwire binary to measure instead of a fresh build")
	flag.Parse()
	if err := b.run(strings.Split(*only, ","), strings.Split(*kinds, ",")); err != nil {
		fmt.Fprintf(os.Stderr, "perf: %v\n", err)
		os.Exit(1)
	}
}

func (b *bench) run(only, kinds []string) (err error) {
	if b.lab, err = lab.Prepare(lab.All, os.Stderr); err != nil {
		return err
	}
	if b.dir, err = os.MkdirTemp("", "guestwire-perf-"); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	if err := os.Chmod(b.dir, 0o755); err != nil {
		return err
	}
	if b.prog, err = b.lab.Build(b.dir, "./test/harness/guestprog"); err != nil {
		return err
	}
	if b.binary == "" && slices.Contains(kinds, backend.Guestwire) {
		if b.binary, err = b.lab.Build(b.dir, "./cmd/guestwire"); err != nil {
			return err
		}
	}
	b.accel = b.lab.Accel()
	if b.initrds, err = b.lab.Initrds(b.dir, b.prog, "iperf3", "vsock_perf"); err != nil {
		return err
	}
	interrupted := make(chan os.Signal, 1)
	signal.Notify(interrupted, os.Interrupt, syscall.SIGTERM)
	parts := []struct {
		name string
		peer string
		run  func(round int, kind string) error
	}{{"uml", backend.Passt, b.uml}, {"qemu", backend.Passt, b.qemu}, {"testpmd", backend.Passt, b.testpmd}, {"vsock", backend.VhostDeviceVSock, b.vsock}, {"netns", pasta, b.netns}, {"vhostnet", pasta, b.vhostNet}, {"redirect", socat, b.redirect}}
	for _, p := range parts {
		if !slices.Contains(only, p.name) {
			continue
		}
		for round := range b.rounds {
			if round > 0 { // neither has the warmer machine every time
				slices.Reverse(kinds)
			}
			for _, kind := range kinds {
				if kind == "peer" {
					kind = p.peer
				}
				start := time.Now()
				if err := p.run(round, kind); err != nil {
					return fmt.Errorf("%s, round %d, %s: %w", p.name, round+1, kind, err)
				}
				fmt.Fprintf(os.Stderr, "%s round %d/%d %s: %.0f s\n", p.name, round+1, b.rounds, kind, time.Since(start).Seconds())
			}
			select {
			case <-interrupted:
				fmt.Fprintln(os.Stderr, "interrupted: this is what there is")
				b.report(os.Stdout)
				return nil
			default:
			}
		}
	}
	b.report(os.Stdout)
	return nil
}

func (b *bench) tempDir(name string) (string, error) {
	dir, err := os.MkdirTemp(b.dir, name)
	if err != nil {
		return "", err
	}
	return filepath.Join(dir, "d"), nil
}
