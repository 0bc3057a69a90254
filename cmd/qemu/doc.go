// Package qemu completes a user's own QEMU command line so that the VM comes up
// connected: shared memory, the socket to our backend, the NIC.
//
// Who calls it: `guestwire run`, on the main goroutine, before QEMU starts.
//
// Rules: whatever the user wrote stays and wins. We add only what is missing,
// always behind the user's arguments, under ids that begin with "guestwire".
// A user who wants to place the device himself writes
// `-device virtio-net-pci,netdev=guestwire,...` and gets just the netdev.
//
// What it knows about QEMU versions: 7.x crashes under TCG when a vhost-user
// device uses MSI-X vectors (fixed in 8.0), so there the device gets vectors=0.
//
// What it deliberately does not do: start a VM from nothing, or read QEMU's
// configuration files (-readconfig): what stands there is invisible to it.
package qemu
