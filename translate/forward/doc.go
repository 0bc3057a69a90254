// Package forward decides where flows go: which destinations the guest may
// reach (Policy), what -t and -u mean (ParseSpec), and the listening sockets of
// inbound forwards (Listeners).
package forward
