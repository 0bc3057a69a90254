package main

import (
	"encoding/json"
	"fmt"
	"log/slog"
	"os"
	"strings"
	"syscall"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/cmd/supervisor"
)

func daemonCommand() *cli.Command {
	return &cli.Command{
		Name:  "daemon",
		Usage: "serve many guests, each by a process of its own",
		Description: "Reads guests and their devices from a YAML file; keys are the options of net and vsock:\n\n" +
			"   guests:\n" +
			"     web:\n" +
			"       net: {socket-path: /run/web-net.sock, tcp-ports: [8080:80]}\n" +
			"       vsock: {socket-path: /run/web-vsock.sock, guest-cid: 3, uds-path: /run/web.vsock}\n\n" +
			"A guest's process is started again when it dies; guests of one vsock group share one.\n\n" +
			"Signals: TERM and INT stop all, HUP reads the file again and starts and stops what has changed in it,\n" +
			"USR1 prints statistics.",
		Flags: []cli.Flag{
			&cli.StringFlag{Name: "config", Aliases: []string{"c"}, Usage: "read guests from the YAML `FILE`"},
			&cli.BoolFlag{Name: "check", Usage: "only say whether the file is right"},
			logFlag(),
		},
		Action:       daemonAction,
		OnUsageError: usageError,
	}
}

func daemonAction(c *cli.Context) error {
	file := c.String("config")
	switch {
	case c.NArg() > 0:
		return cli.Exit(fmt.Sprintf("daemon takes no arguments, only options; %q is too much (see guestwire daemon --help)", c.Args().First()), 2)
	case file == "":
		return cli.Exit("--config: say which file names the guests: --config FILE (see guestwire daemon --help)", 2)
	}
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	jobs, err := readJobs(file)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	if c.Bool("check") {
		fmt.Fprintf(c.App.Writer, "%s: is right, %d worker processes\n", file, len(jobs))
		return nil
	}
	d := &daemon{file: file, log: log, supervisor: supervisor.New(supervisor.Config{
		Command: workerCommand(c.String("log-level")), Log: log,
	})}
	d.run(jobs)
	return nil
}

// readJobs turns a file into what worker processes shall do: one a guest, or a
// group of siblings. The input of each are its guests' options, as JSON.
func readJobs(file string) ([]supervisor.Job, error) {
	f, err := config.ReadGuests(file)
	if err != nil {
		return nil, err
	}
	guests, err := f.Resolve(config.ReadHostNet)
	if err != nil {
		return nil, err
	}
	var jobs []supervisor.Job
	for _, members := range config.Processes(guests) {
		var names []string
		var options []config.GuestOptions
		for _, i := range members {
			names = append(names, guests[i].Name)
			options = append(options, f.Guests[i])
		}
		input, err := json.Marshal(options)
		if err != nil {
			return nil, err
		}
		jobs = append(jobs, supervisor.Job{Name: strings.Join(names, "+"), Input: input})
	}
	return jobs, nil
}

// daemon is a running `guestwire daemon`.
type daemon struct {
	file       string
	log        *slog.Logger
	supervisor *supervisor.Supervisor
}

// run serves until a signal ends it.
func (d *daemon) run(jobs []supervisor.Job) {
	sig := catch(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1)
	settled := d.supervisor.Set(jobs)
	defer d.supervisor.Stop()
	for {
		select {
		case <-settled:
			d.ready()
			settled = nil
		case s := <-sig:
			switch s {
			case syscall.SIGHUP:
				if now := d.reread(); now != nil {
					settled = now
				}
			case syscall.SIGUSR1:
				d.supervisor.Each(func(name string, v uint64) { fmt.Fprintf(os.Stderr, "%s %d\n", name, v) })
				d.supervisor.Signal(s)
			default:
				return
			}
		}
	}
}

// ready prints the ready line: after the start, and after every change.
func (d *daemon) ready() {
	workers := 0
	d.supervisor.Each(func(name string, v uint64) {
		if name == "daemon_workers" {
			workers = int(v)
		}
	})
	waiting := d.supervisor.Waiting()
	if len(waiting) == 0 {
		fmt.Fprintf(os.Stderr, "guestwire daemon: ready, %d workers\n", workers)
		return
	}
	fmt.Fprintf(os.Stderr, "guestwire daemon: ready, %d of %d workers; not (see above): %s\n",
		workers-len(waiting), workers, strings.Join(waiting, ", "))
}

// reread takes over what the file says now. A file with mistakes changes nothing.
func (d *daemon) reread() (settled <-chan struct{}) {
	jobs, err := readJobs(d.file)
	if err != nil {
		d.log.Error("nothing is changed, because the file is not right:\n" + err.Error())
		return nil
	}
	d.log.Info(d.file + " was read again")
	return d.supervisor.Set(jobs)
}
