// Package vsockbridge is the virtio-vsock device (virtio 1.3, 5.10).
package vsockbridge
