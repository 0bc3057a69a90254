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
	flags := append(netFlags(), vsockFlags()...)
	flags = append(flags,
		&cli.BoolFlag{Name: "no-vsock", Usage: "no vsock device", Category: "Vsock device"},
		&cli.BoolFlag{Name: "dry-run", Usage: "print the completed command line and exit"})
	return &cli.Command{
		Name:      "run",
		Usage:     "start QEMU with a network card and a vsock device of ours",
		ArgsUsage: "-- qemu-system-x86_64 ARGS...",
		Description: "Completes your own QEMU command line and runs it: shared memory, the sockets, a virtio-net and a vsock\n" +
			"device are added where they are missing, nothing of yours is changed. The exit code is QEMU's.\n\n" +
			"   guestwire run -t 2222:22 -- qemu-system-x86_64 -m 1G -nographic disk.img\n\n" +
			"The ready line says which CID the guest has and where processes of the host reach its vsock ports. There is\n" +
			"no vsock device where the VM has one of its own, and with --transport stream only when an option asks for it.\n\n" +
			"To place the devices yourself (MAC address, bus), refer to our netdev and chardev:\n\n" +
			"   guestwire run -- qemu-system-x86_64 ... -device virtio-net-pci,netdev=guestwire,mac=52:54:00:12:34:56 \\\n" +
			"     -device vhost-user-vsock-pci,chardev=guestwire-vsock,bus=...\n\n" +
			"Signals: TERM and HUP go to QEMU, USR1 prints statistics.",
		Flags: flags,
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
	command := c.Args().Slice()
	if len(command) > 0 && command[0] == "--" {
		command = command[1:]
	}
	o := config.GuestOptions{Net: &config.Options{FD: -1}, Vsock: &config.VsockOptions{FD: -1}}
	read(c, o.Net)
	read(c, o.Vsock)
	vsock, err := wantsVsock(c, command)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	dir, cid, err := openRunDir(runtimeDir(), o.Vsock.GuestCID)
	if err != nil {
		return err
	}
	defer dir.close()
	o.Net.SocketPath = filepath.Join(dir.path, "net.sock")
	o.Vsock.SocketPath = filepath.Join(dir.path, "vsock.sock")
	o.Vsock.GuestCID = cid
	if o.Vsock.UDSPath == "" && o.Vsock.ForwardCID == 0 {
		o.Vsock.UDSPath = filepath.Join(dir.path, "vsock")
	}
	if !vsock {
		o.Vsock = nil
	}
	guest, err := o.Resolve(config.ReadHostNet)
	if err == nil {
		err = config.Clash([]config.Guest{guest})
	}
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	if command, err = complete(command, &guest); err != nil {
		return cli.Exit(err.Error(), 2)
	}
	if c.Bool("dry-run") {
		fmt.Println(qemu.Quote(command))
		return nil
	}
	log.Debug("starting " + qemu.Quote(command))
	return runConnected(command, guest, log)
}

// wantsVsock decides whether the VM gets a vsock device: unless something
// hinders it, and then it is an error to have asked for it.
func wantsVsock(c *cli.Context, command []string) (bool, error) {
	asked := ""
	for _, f := range vsockFlags() {
		if c.IsSet(f.Names()[0]) {
			asked = "--" + f.Names()[0]
		}
	}
	hindrance := qemu.VsockHindrance(command)
	switch {
	case c.Bool("no-vsock"):
		hindrance = "--no-vsock is given too"
	case asked == "" && c.String("transport") == string(config.Stream):
		return false, nil // which is chosen where memory cannot be shared
	}
	if asked != "" && hindrance != "" {
		return false, fmt.Errorf("%s: %s", asked, hindrance)
	}
	return hindrance == "", nil
}

func complete(command []string, guest *config.Guest) ([]string, error) {
	version := 0
	if len(command) > 0 {
		_, major, err := qemu.Version(command[0])
		if errors.Is(err, exec.ErrNotFound) || errors.Is(err, os.ErrNotExist) {
			return nil, fmt.Errorf("%s: not found: install QEMU (Debian: apt-get install qemu-system-x86) or give its path", command[0])
		}
		if err == nil {
			version = major
		}
	}
	n := guest.Net
	vsockSocket := ""
	if guest.Vsock != nil {
		vsockSocket = guest.Vsock.SocketPath
	}
	return qemu.Complete(command, version, qemu.NIC{
		Socket: n.SocketPath, Stream: n.Transport == config.Stream, MTU: n.MTU,
	}, vsockSocket)
}

// runConnected starts the backend first and stops it last.
func runConnected(command []string, guest config.Guest, log *slog.Logger) error {
	w, err := worker.New([]config.Guest{guest}, log)
	if err != nil {
		return err
	}
	defer w.Close()
	served := make(chan error, 1)
	go func() { served <- w.Run() }()
	if s := w.Forwards() + vsockPlace(guest.Vsock); s != "" {
		fmt.Fprintf(os.Stderr, "guestwire run: ready%s\n", s)
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

// vsockPlace says for the ready line how the host reaches the guest.
func vsockPlace(v *config.Vsock) string {
	switch {
	case v == nil:
		return ""
	case v.Host.UDSPath == "":
		return fmt.Sprintf("; vsock CID %d", v.CID)
	}
	return fmt.Sprintf("; vsock CID %d, clients connect to %s", v.CID, v.Host.UDSPath)
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
