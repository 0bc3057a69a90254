package main

import (
	"fmt"
	"os"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
	"guestwire/cmd/logx"
)

func netCommand() *cli.Command {
	return &cli.Command{
		Name:  "net",
		Usage: "be the network card of one guest",
		Description: "Listens on a UNIX socket for a vhost-user frontend (QEMU and other VMMs) and translates the guest's\n" +
			"frames to ordinary sockets of this host. Addressing is that of QEMU's user networking: the guest is\n" +
			"10.0.2.15, its router 10.0.2.2, its resolver 10.0.2.3; DHCP, DHCPv6 and router advertisements tell it so.\n\n" +
			"   guestwire net --socket-path /tmp/vm.sock -t 2222:22\n" +
			"   qemu-system-x86_64 -m 1G -object memory-backend-memfd,id=m,size=1G,share=on -machine memory-backend=m \\\n" +
			"     -chardev socket,id=c,path=/tmp/vm.sock -netdev vhost-user,id=n,chardev=c -device virtio-net-pci,netdev=n ...\n\n" +
			"Signals: TERM, INT and HUP stop, USR1 prints statistics.",
		Flags:        append(attachFlags(), netFlags()...),
		Action:       netAction,
		OnUsageError: usageError,
	}
}

func netAction(c *cli.Context) error {
	if c.Bool("print-capabilities") {
		fmt.Fprintln(c.App.Writer, `{"type":"net","features":[]}`)
		return nil
	}
	if c.NArg() > 0 {
		return cli.Exit(fmt.Sprintf("net takes no arguments, only options; %q is too much (see guestwire net --help)", c.Args().First()), 2)
	}
	log, err := logx.New(os.Stderr, c.String("log-level"))
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	o := config.Options{FD: -1}
	read(c, &o)
	cfg, err := config.Resolve(&o, config.ReadHostNet)
	if err != nil {
		return cli.Exit(err.Error(), 2)
	}
	return serve("net", []config.Guest{{Net: cfg}}, log)
}
