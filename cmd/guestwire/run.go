package main

import (
	"errors"
	"fmt"
	"log/slog"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"syscall"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
	"guestwire/cmd/qemu"
	"guestwire/cmd/worker"
)

func runCommand() *cli.Command {
	return &cli.Command{
		Name:      "run",
		Usage:     "start QEMU with a network card of ours",
		ArgsUsage: "-- qemu-system-x86_64 ARGS...",
		Description: "Completes your own QEMU command line and runs it: shared memory, the socket and a virtio-net device are\n" +
			"added where they are missing, nothing of yours is changed. The exit code is QEMU's.\n\n" +
			"   guestwire run -t 2222:22 -- qemu-system-x86_64 -m 1G -nographic disk.img\n\n" +
			"To place the device yourself (MAC address, bus), refer to our netdev:\n\n" +
			"   guestwire run -- qemu-system-x86_64 ... -device virtio-net-pci,netdev=guestwire,mac=52:54:00:12:34:56\n\n" +
			"Signals: TERM and HUP go to QEMU, USR1 prints statistics.",
		Flags: append(netFlags(), &cli.BoolFlag{Name: "dry-run", Usage: "print the completed command line and exit"}),
		Action: func(c *cli.Context) error {
			log, err := logx.New(os.Stderr, c.String("log-level"))
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			return runVM(c, log)
		},
		OnUsageError: usageError,
	}
}

func runVM(c *cli.Context, log *slog.Logger) error {
	dir, err := os.MkdirTemp(runtimeDir(), "guestwire-")
	if err != nil {
		return fmt.Errorf("no place for the VM's socket: %w", err)
	}
	defer os.RemoveAll(dir)

	o := config.Options{SocketPath: filepath.Join(dir, "net.sock"), FD: -1}
	read(c, &o)
	cfg, err := config.Resolve(&o, config.ReadHostNet)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	command := c.Args().Slice()
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	if command, err = complete(command, cfg); err != nil {
		return cli.Exit(err.Error(), 2)
	}
	if c.Bool("dry-run") {
		fmt.Println(qemu.Quote(command))
		return nil
	}
	log.Debug("starting " + qemu.Quote(command))
	return runConnected(command, cfg, log)
}

func complete(command []string, cfg *config.Net) ([]string, error) {
	version := 0
	if len(command) > 0 {
		full, major, err := qemu.Version(command[0])
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: not found: install QEMU (Debian: apt-get install qemu-system-x86) or give its path", command[0])
		}
		if err == nil {
			version = major
			_ = full
		}
	}
	return qemu.Complete(command, version, qemu.NIC{
		Socket: cfg.SocketPath, Stream: cfg.Transport == config.Stream, MTU: cfg.MTU,
	})
}

// runConnected starts the backend first and stops it last.
func runConnected(command []string, cfg *config.Net, log *slog.Logger) error {
	w, err := worker.New([]config.Guest{{Net: cfg}}, log)
	if err != nil {
		return err
	}
	defer w.Close()
	served := make(chan error, 1)
	go func() { served <- w.Run() }()
	if f := w.Forwards(); f != "" {
		fmt.Fprintf(os.Stderr, "guestwire run: ready%s\n", f)
	}

	vm := exec.Command(command[0], command[1:]...)
	vm.Stdin, vm.Stdout, vm.Stderr = os.Stdin, os.Stdout, os.Stderr
	stop := passSignals(vm, w)
	defer stop()
	if err := vm.Start(); err != nil {
		w.Stop()
		return fmt.Errorf("start %s: %w", command[0], err)
	}
	ended := make(chan error, 1)
	go func() { ended <- vm.Wait() }()
	select {
	case err = <-ended:
		w.Stop()
		<-served
	case backend := <-served:
		log.Error("the VM has lost its network: the backend ended", "error", backend)
		err = <-ended
	}
	return exitCode(err)
}

// passSignals hands TERM and HUP on to the VM. INT reaches it from the terminal
// by itself; here it is only kept from ending us before the VM. USR1 prints
// statistics.
func passSignals(vm *exec.Cmd, w *worker.Worker) (stop func()) {
	sig := make(chan os.Signal, 4)
	signal.Notify(sig, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGUSR1)
	go func() {
		for s := range sig {
			switch {
			case s == syscall.SIGUSR1:
				w.PrintStats(os.Stderr)
			case s != syscall.SIGINT && vm.Process != nil:
				_ = vm.Process.Signal(s)
			}
		}
	}()
	return func() { signal.Stop(sig); close(sig) }
}

// exitCode passes the VM's own end on, as a shell does: 128+N for signal N.
func exitCode(err error) error {
	var exit *exec.ExitError
	if !errors.As(err, &exit) {
		return err
	}
	if ws, ok := exit.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
		return cli.Exit("", 128+int(ws.Signal()))
	}
	return cli.Exit("", exit.ExitCode())
}

func runtimeDir() string {
	if d := os.Getenv("XDG_RUNTIME_DIR"); d != "" {
		if st, err := os.Stat(d); err == nil && st.IsDir() {
			return d
		}
	}
	return os.TempDir()
}
