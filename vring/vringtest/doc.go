// Package vringtest builds what the tests of rings and of devices on rings need:
// guest memory in a memfd (Memory), a split ring in it that can be filled field by
// field (Ring), a driver with buffers (Driver), eventfds (Event), and the ring
// part of the hostile catalogue (Hostiles).
//
// Who calls it: tests, fuzz targets and load generators, on their own goroutine.
// A Memory is mapped twice: the device side sees it through a guestmem.Table,
// the driver side through a mapping of its own, as with a real guest.
//
// What it trusts: its caller. Mistakes in the use of it end the test.
//
// Limits: memory is handed out upwards and never comes back, except for the
// buffers of a Driver.
//
// What it deliberately does not do: no vhost-user (vhostuser has a Frontend to
// send Memory.Regions with), no virtio-net header.
package vringtest
