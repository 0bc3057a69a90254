// Package vhostkern asks the kernel's vhost-net (/dev/vhost-net, linux/vhost.h) to
// be the device of two rings whose driver is this process: it moves frames between
// them and a tap interface.
//
// Who calls it: vnet/vhostnet, on the loop or before it runs; Open may be called
// earlier and by somebody else, since the device is often out of reach inside a
// user namespace and can be passed as a descriptor. Nothing here is on the data
// path: once attached, the kernel has a thread of its own (it counts as one of
// ours), and all that passes is rings and eventfds.
//
// What it trusts: the kernel. Its caller must keep the memory of the rings and of
// all buffers, one Arena, mapped until both rings are detached, and must not fork
// a process that goes on without exec: the kernel reads the memory of the process
// that called Setup.
//
// States of a Device: open; set up (it has owner, features and memory, once and for
// all); and for each ring detached or attached. A ring can be attached again after
// it was detached, from zeroed indices.
//
// Limits: one queue pair per device, two for all rings; one memory region. Errors
// name the ioctl that failed.
//
// What it deliberately does not do: no IOTLB (VIRTIO_F_ACCESS_PLATFORM is never
// accepted), no dirty log, no busy polling (it takes a CPU from the data), no
// vhost-vsock.
package vhostkern
