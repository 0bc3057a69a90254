package main

import (
	"fmt"
	"log/slog"
	"os"
	"os/signal"
	"syscall"

	"guestwire/cmd/config"
	"guestwire/cmd/worker"
)

// serve is a device command: it serves guests until a signal ends it.
func serve(command string, guests []config.Guest, log *slog.Logger) error {
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
