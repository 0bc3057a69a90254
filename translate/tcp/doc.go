// Package tcp carries the TCP connections of a guest.
package tcp
