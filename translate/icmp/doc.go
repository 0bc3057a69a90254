// Package icmp carries the guest's echo requests over the host's ping sockets
// and tells the guest, by ICMP and ICMPv6 errors, why a packet of any protocol
// did not get on.
package icmp
