// Package qemu completes a user's own QEMU command line so that the VM comes up
// connected: shared memory, the sockets to our backends, the NIC, the vsock
// device.
//
// Who calls it: `guestwire run`, on the main goroutine, before QEMU starts.
//
// Rules: whatever the user wrote stays and wins. We add only what is missing,
// always behind the user's arguments, under ids that begin with "guestwire".
// A user who wants to place the device himself writes
// `-device virtio-net-pci,netdev=guestwire,...` and gets just the netdev; the same
// with `-device vhost-user-vsock-pci,chardev=guestwire-vsock,...`. A VM that has a
// vsock device of its own gets none from us.
//
// What it knows about QEMU versions: 7.x crashes under TCG when a vhost-user
// device uses MSI-X vectors (fixed in 8.0), so there the device gets vectors=0.
//
// What it deliberately does not do: start a VM from nothing, or read QEMU's
// configuration files (-readconfig): what stands there is invisible to it.
package qemu
