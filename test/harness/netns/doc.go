// Package netns makes the world that a guest under test is connected to: three network namespaces joined by veth pairs, so that no load leaves the machine.
//
//	host 198.51.100.2 --- 198.51.100.1 peer 203.0.113.1 --- 203.0.113.2 far
//	     2001:db8::2      2001:db8::1       2001:db8:1::1    2001:db8:1::2
//
// The daemon under test runs in "host". "peer" is its default gateway and, at 198.51.100.3 and 2001:db8::3, the machine with DNS and the services; "far" lies
// one hop behind it, for traceroute and path MTU. Names carry the process id: concurrent runs do not meet, and what a killed run left is removed by the next.
//
// Servers and clients on the host side are ordinary Go: NS.Do runs a function on a thread inside the namespace, and the sockets it makes stay there.
package netns
