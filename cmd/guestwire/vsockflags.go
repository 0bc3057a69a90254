package main

import (
	"strconv"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
)

// vsockFlags are the options of a vsock device, shared by `vsock` and `run`. The
// names that vhost-device-vsock has too mean the same.
func vsockFlags() []cli.Flag {
	return append(addressVsockFlags(), hostsideFlags()...)
}

func addressVsockFlags() []cli.Flag {
	const cat = "Vsock device"
	return []cli.Flag{
		&cli.Int64Flag{Name: "guest-cid", Usage: "the guest's address: a `CID` from 3 on; guestwire run takes the first that is free if none is given", Category: cat},
		&cli.Int64Flag{Name: "tx-buffer-size", Usage: "`BYTES` that a connection may have under way from the guest", DefaultText: strconv.Itoa(config.DefaultTxBuffer), Category: cat},
		&cli.IntFlag{Name: "max-connections", Usage: "at most `N` connections at a time", DefaultText: strconv.Itoa(config.DefaultMaxConns), Category: cat},
		&cli.IntFlag{Name: "queue-size", Usage: "accepted for vhost-device-vsock's sake and checked: rings have the `SIZE` that the frontend gives them", DefaultText: "the frontend's", Category: cat},
		&cli.BoolFlag{Name: "no-seqpacket", Usage: "no SEQPACKET sockets", Category: withheldCategory},
	}
}

func hostsideFlags() []cli.Flag {
	const cat = "Vsock on the host"
	return []cli.Flag{
		&cli.StringFlag{Name: "uds-path", Usage: "processes of the host connect to the UNIX socket `PATH`, write \"CONNECT PORT\" and are led to that port of the guest; the guest's connections to port N arrive at PATH_N", Category: cat},
		&cli.StringFlag{Name: "uds-mode", Usage: "permissions of the sockets at --uds-path, `OCTAL`", DefaultText: "0600", Category: cat},
		&cli.StringFlag{Name: "uds-owner", Usage: "owner of the sockets at --uds-path, `USER[:GROUP]`", Category: cat},
		&cli.StringFlag{Name: "ok-line", Usage: "`WHEN` clients of --uds-path read \"OK PORT\": always, never, or short (at most 9 bytes, for systemd-ssh-proxy)", DefaultText: "always", Category: cat},
		&cli.StringFlag{Name: "wait", Usage: "clients of --uds-path wait `TIME` for the guest to listen, like 5s", DefaultText: "not at all", Category: cat},
		&cli.StringSliceFlag{Name: "listen", Usage: "lead clients of one address of the host to one port of the guest: `HOST=vsock:PORT`, HOST being unix:PATH[,mode=OCTAL][,owner=USER:GROUP][,type=seqpacket][,wait=5s], tcp:ADDRESS:PORT or, of the host's kernel, vsock:PORT", Category: cat},
		&cli.StringSliceFlag{Name: "connect", Usage: "lead the guest's connections to one port to one address of the host: `vsock:PORT=HOST`, HOST being unix:PATH[,type=seqpacket], tcp:ADDRESS:PORT or, of the host's kernel, vsock:CID:PORT", Category: cat},
		&cli.Int64Flag{Name: "forward-cid", Usage: "lead the guest's connections to the same ports of `CID` of the host kernel's vsock (1: this host) instead of PATH_N of --uds-path", DefaultText: "none", Category: cat},
		&cli.StringFlag{Name: "forward-listen", Usage: "lead connections to these `PORT[+PORT...]` of the host kernel's vsock to the same ports of the guest", Category: cat},
	}
}

// ringFlags withhold features that the network card has too, so that `run` has
// each of them once.
func ringFlags() []cli.Flag {
	return []cli.Flag{
		&cli.BoolFlag{Name: "no-event-idx", Usage: "no event index", Category: withheldCategory},
		&cli.BoolFlag{Name: "no-indirect", Usage: "no indirect descriptors", Category: withheldCategory},
		&cli.BoolFlag{Name: "no-in-order", Usage: "no in-order completion", Category: withheldCategory},
	}
}
