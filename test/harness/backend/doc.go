// Package backend starts the daemon under test, guestwire, or the peer it is compared with, passt, with the same addressing: guest 10.0.2.15, gateway
// 10.0.2.2, DNS forwarder 10.0.2.3, and their IPv6 counterparts. What the guests and the checks find out about passt shows that guests and checks work.
// For vsock the peer is vhost-device-vsock.
package backend
