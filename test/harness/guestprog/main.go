// Guestprog is the tests' own program inside a guest: agent, traffic client and server, DNS and DHCP queries. One static binary for every guest.
//
//	guestprog agent DEVICE                      run the host's commands (package agent)
//	guestprog serve PORT                        traffic server, TCP and UDP, all addresses
//	guestprog get|put ADDR:PORT N SEED          and half, reset-in, reset-out, refused, parallel N SIZE, ask WORDS...
//	guestprog udp-sizes ADDR:PORT [SIZE...]     guestprog udp-ask ADDR:PORT TEXT
//	guestprog dns udp|tcp SERVER NAME TYPE      prints the answers, one a line, sorted
//	guestprog dhcp6 IFACE                       prints what a DHCPv6 server assigns, by request and by rapid commit
//
// The exit code tells whether the check held; the reason goes to standard error.
package main

import (
	"fmt"
	"os"
	"time"
)

// limit bounds one exchange; the host's own deadline for the command comes after it.
const limit = 4 * time.Minute

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: guestprog COMMAND ARGS...")
		os.Exit(2)
	}
	commands := map[string]func(args []string) error{
		"agent": runAgent, "serve": serve, "udp-sizes": udpSizes, "udp-ask": udpAsk,
		"dns": dnsQuery, "dhcp6": dhcp6, "udp-flood": udpFlood,
	}
	for _, name := range []string{"get", "put", "half", "reset-in", "reset-out", "refused", "parallel", "ask"} {
		commands[name] = func(args []string) error { return tcp(name, args) }
	}
	f, ok := commands[os.Args[1]]
	if !ok {
		fmt.Fprintf(os.Stderr, "guestprog: no command %q\n", os.Args[1])
		os.Exit(2)
	}
	if err := f(os.Args[2:]); err != nil {
		fmt.Fprintf(os.Stderr, "guestprog %s: %v\n", os.Args[1], err)
		os.Exit(1)
	}
}

// want checks the number of arguments.
func want(args []string, n int, usage string) error {
	if len(args) < n {
		return fmt.Errorf("arguments: %s", usage)
	}
	return nil
}
