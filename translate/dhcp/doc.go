// Package dhcp gives the guest its one IPv4 and its one IPv6 address, and what
// belongs to them.
package dhcp
