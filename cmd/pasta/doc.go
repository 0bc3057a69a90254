// Package pasta reads the command line of pasta(1), so that what starts pasta
// (podman, rootlesskit, moby, scripts) can start guestwire in its place.
//
// Who calls it: cmd/guestwire, when it is called as pasta or with the subcommand
// of that name; Parse once, before anything is opened.
//
// It gives what `guestwire netns` takes (config.NetnsOptions) and what that has
// not: daemon, PID file, log file. Nothing is done here: there is one way to serve a
// namespace, and this is another spelling of its options.
//
// # Grammar
//
// That of getopt_long(3) with a leading "+": options end at the first other word or
// at "--"; -t8080 and -qf as there. Unlike there, long names are not to be
// shortened. Errors read as getopt's do, since podman looks for "unrecognized option
// '--...'" in them.
//
// # Defaults
//
// pasta's: the host's own addresses and routers are copied, the interface is named
// as the host's, ports follow what listens (auto, all four), the gateway's address
// leads to the host's loopback, the MTU is 65,520, the interface is left to a DHCP
// client without --config-net. It becomes a daemon as soon as a namespace that
// exists is served.
//
// # What it deliberately does not do
//
// Options about what is not there, or is done anyway, are taken and do nothing:
// --interface (the one with the default route counts), --userns (it is found by
// itself), --netns-only, --no-netns-quit (we end with the namespace), --runas,
// --no-splice, --no-copy-*, --no-dhcp-dns, --no-dhcp-search, --freebind,
// --ns-mac-addr, --log-size, --stderr, --trace. No control socket of pesto(1).
package pasta
