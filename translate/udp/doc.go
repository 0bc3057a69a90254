// Package udp carries the guest's datagrams over host sockets.
package udp
