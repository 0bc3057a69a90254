package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
)

func vsockCommand() *cli.Command {
	const cat = "Several guests in one process"
	flags := append(attachFlags(), vsockFlags()...)
	flags = append(flags, ringFlags()...)
	flags = append(flags,
		&cli.StringSliceFlag{Name: "groups", Usage: "sibling groups the guest is in, as `NAME[+NAME...]`: guests that share one reach each other by their CIDs", Category: cat},
		&cli.StringSliceFlag{Name: "vm", Usage: "one guest, as a list of the options above without dashes: `guest-cid=N,socket=PATH,uds-path=PATH,...`; once for every guest", Category: cat},
		&cli.StringFlag{Name: "config", Usage: "read guests from the YAML `FILE`: a list vms with the keys of --vm", Category: cat},
		pollFlag(), logFlag())
	return &cli.Command{
		Name:  "vsock",
		Usage: "be the vsock device of one or several guests",
		Description: "Listens on a UNIX socket for a vhost-user frontend (QEMU and other VMMs) and joins the guest's vsock\n" +
			"connections to UNIX sockets of this host, both ways, STREAM and SEQPACKET.\n\n" +
			"   guestwire vsock --socket-path /tmp/vm.sock --guest-cid 3 --uds-path /tmp/vm.vsock\n" +
			"   qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=m,size=1G,share=on -machine memory-backend=m \\\n" +
			"     -chardev socket,id=v,path=/tmp/vm.sock -device vhost-user-vsock-pci,chardev=v ...\n\n" +
			"A process of the host reaches port 22 of the guest:  (echo CONNECT 22; cat) | nc -U /tmp/vm.vsock\n" +
			"The guest's connections to port 1024 of CID 2 arrive at /tmp/vm.vsock_1024.\n\n" +
			"Guests that shall reach each other (siblings) are served by one process:\n\n" +
			"   guestwire vsock --vm guest-cid=3,socket=/tmp/a.sock,uds-path=/tmp/a.vsock --vm guest-cid=4,socket=/tmp/b.sock,uds-path=/tmp/b.vsock\n\n" +
			"Those of --vm and --config are all in the group \"default\" unless groups=A+B says otherwise.\n\n" +
			"Signals: TERM, INT and HUP stop, USR1 prints statistics.",
		Flags:        flags,
		Action:       vsockAction,
		OnUsageError: usageError,
	}
}

func vsockAction(c *cli.Context) error {
	if c.Bool("print-capabilities") {
		fmt.Fprintln(c.App.Writer, `{"type":"vsock","features":[]}`)
		return nil
	}
	if c.NArg() > 0 {
		return cli.Exit(fmt.Sprintf("vsock takes no arguments, only options; %q is too much (see guestwire vsock --help)", c.Args().First()), 2)
	}
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	guests, err := vsockGuests(c)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	return serve("vsock", guests, log)
}

// vsockGuests are the guest of the plain options, or those of --vm or --config.
func vsockGuests(c *cli.Context) ([]config.Guest, error) {
	one := config.VsockOptions{FD: -1}
	read(c, &one)
	vms, file := c.StringSlice("vm"), c.String("config")
	if len(vms) == 0 && file == "" {
		v, err := config.ResolveVsock(&one)
		return []config.Guest{{Vsock: v}}, err
	}
	for _, f := range config.Fields(&one) {
		if c.IsSet(f.Key) {
			return nil, fmt.Errorf("--%s: is for one guest alone: with --vm and --config write it for the guest that it belongs to", f.Key)
		}
	}
	switch {
	case file == "":
		return config.ResolveVMs(vms)
	case len(vms) > 0:
		return nil, fmt.Errorf("--vm: give either --vm or --config, not both")
	}
	f, err := config.ReadVMs(file)
	if err != nil {
		return nil, err
	}
	return f.Resolve(config.ReadHostNet)
}
