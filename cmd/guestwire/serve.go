package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"strconv"
	"syscall"

	"github.com/urfave/cli/v2"
	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/cmd/worker"
)

// serve is a device command: it serves guests until a signal ends it.
func serve(command string, guests []config.Guest, log *slog.Logger) error {
	if err := config.Clash(guests); err != nil {
		return cli.Exit(err.Error(), 2)
	}
	for i := range guests {
		if err := checkFD(&guests[i]); err != nil {
			return cli.Exit(err.Error(), 2)
		}
	}
	w, err := worker.New(guests, log)
	if err != nil {
		return err
	}
	defer w.Close()
	sig := catch(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP, syscall.SIGUSR1) // before anybody reads that we are ready
	fmt.Fprintf(os.Stderr, "guestwire %s: ready on %s\n", command, w.Ready())
	go control(w, sig)
	return w.Run()
}

// checkFD makes sure that --fd names an open socket: what it says was right or wrong
// before we came.
func checkFD(g *config.Guest) error {
	fd := -1
	if g.Net != nil && g.Net.SocketPath == "" {
		fd = g.Net.FD
	} else if g.Vsock != nil && g.Vsock.SocketPath == "" {
		fd = g.Vsock.FD
	}
	if fd < 0 {
		return nil
	}
	var st unix.Stat_t
	want := ""
	switch err := unix.Fstat(fd, &st); {
	case err != nil:
		want = "nothing is open as this descriptor: whoever starts guestwire has to leave it a UNIX socket there"
	case st.Mode&unix.S_IFMT != unix.S_IFSOCK:
		want = "is no socket: pass a UNIX socket that is connected or listens"
	default:
		return nil
	}
	return &config.Error{Option: "--fd", Value: strconv.Itoa(fd), Want: want}
}

// catch has the signals delivered, and those of a broken pipe lost: that nobody
// reads our log any more must not end us. Ignored, they would stay so in what we
// start.
func catch(signals ...os.Signal) <-chan os.Signal {
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, signals...)
	signal.Notify(make(chan os.Signal, 1), syscall.SIGPIPE)
	return sig
}

// control turns signals into calls of the worker: the one goroutine beside the
// loop that a device command needs.
func control(w *worker.Worker, sig <-chan os.Signal) {
	for s := range sig {
		if s == syscall.SIGUSR1 {
			w.PrintStats(os.Stderr)
			continue
		}
		w.Stop()
		signal.Reset(syscall.SIGTERM, syscall.SIGINT, syscall.SIGHUP) // a second one ends us at once
		return
	}
}
