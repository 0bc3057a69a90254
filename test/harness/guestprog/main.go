// Guestprog is the tests' own program inside a guest: agent, traffic client and server, DNS and DHCP queries. One static binary for every guest.
//
//	guestprog agent DEVICE                      run the host's commands (package agent)
//	guestprog serve PORT                        traffic server, TCP and UDP, all addresses
//	guestprog serve vsock:PORT                  traffic server on vsock: STREAM at PORT, echo of SEQPACKET messages at PORT+1
//	guestprog get|put ADDR N SEED [CHUNK]       and half, reset-in, reset-out, refused, parallel N SIZE, ask WORDS...; ADDR is HOST:PORT, unix:PATH or vsock:CID:PORT
//	guestprog blast|drain ADDR N CHUNK [BUFFER] bytes per second, guest to host and back; churn ADDR N: microseconds
//	guestprog pings PORT N                      p50 and p99 of N round trips to a port of the host by vsock, and N connections of one each: microseconds; serve-pings PORT: their server
//	guestprog sink PORT                         takes one connection by vsock to its end and prints how fast the bytes came
//	guestprog slow ADDR N SEED                  get by a reader that pauses
//	guestprog seqpacket CID PORT                messages of all sizes to an echo server
//	guestprog dgrams PATH N SEED MAX [fixed]    N bytes to a UNIX datagram socket; pour PATH N CHUNK: to a stream socket
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
		"dns": dnsQuery, "dhcp6": dhcp6, "udp-flood": udpFlood, "seqpacket": seqpacket, "dgrams": dgrams, "pour": pour,
		"pings": pings, "serve-pings": servePings, "sink": sink,
	}
	for _, name := range []string{"get", "put", "slow", "half", "reset-in", "reset-out", "refused", "parallel", "ask"} {
		commands[name] = func(args []string) error { return stream(name, args) }
	}
	for _, name := range []string{"blast", "drain", "churn"} {
		commands[name] = func(args []string) error { return measure(name, args) }
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
