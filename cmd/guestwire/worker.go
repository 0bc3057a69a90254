package main

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"syscall"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/cmd/supervisor"
	"guestwire/cmd/worker"
)

// workerCommand is how the daemon runs this binary as a worker. The path stays
// that of the binary which runs now, whatever is installed meanwhile.
func workerCommand(level string) func(supervisor.Job) []string {
	return func(j supervisor.Job) []string {
		return []string{"/proc/self/exe", "guestwire", "worker", "--log-level", level, j.Name}
	}
}

// workerProcess is `guestwire worker`, which only the daemon calls: see package
// supervisor for what passes between the two.
func workerProcess() *cli.Command {
	return &cli.Command{
		Name:   "worker",
		Hidden: true,
		Flags:  []cli.Flag{logFlag()},
		Action: func(c *cli.Context) error {
			log, err := logx.New(os.Stderr, c.String("log-level"))
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			in := bufio.NewReader(os.Stdin)
			guests, err := readWorkerInput(in)
			if err != nil {
				return err
			}
			w, err := worker.New(guests, log)
			if err != nil {
				return err
			}
			defer w.Close()
			signal.Ignore(syscall.SIGHUP) // is the daemon's
			sig := catch(syscall.SIGTERM, syscall.SIGINT, syscall.SIGUSR1)
			go control(w, sig)
			go func() {
				_, _ = io.Copy(io.Discard, in) // ends with the daemon
				w.Stop()
			}()
			fmt.Println(w.Ready())
			return w.Run()
		},
	}
}

func readWorkerInput(in *bufio.Reader) ([]config.Guest, error) {
	line, err := in.ReadBytes('\n')
	if err != nil {
		return nil, errors.New("worker: is started by guestwire daemon, which hands it the guests; to serve one guest by hand see guestwire net and guestwire vsock")
	}
	var options []config.GuestOptions
	if err := json.Unmarshal(line, &options); err != nil {
		return nil, fmt.Errorf("worker: the guests: %w", err)
	}
	guests := make([]config.Guest, len(options))
	for i := range options {
		if guests[i], err = options[i].Resolve(config.ReadHostNet); err != nil {
			return nil, err
		}
	}
	return guests, nil
}
