// Package hostile drives a whole worker with what hostile or broken guests,
// frontends, peers and networks send, one subtest for each row of the catalogue,
// named by it:
//
//	go test ./test/hostile -run TestHostile/R5 -v
//
// R are rings and descriptors, M is vhost-user, memory and lifecycle, N are
// virtio-net headers and frames, T is TCP, U are UDP, ICMP and IP, L are
// neighbours, DHCP and DNS, V is vsock, S is the system. The rows that concern one
// room alone are tested there as well, in more depth (vring, vring/vhostuser,
// translate/tcp, vsockbridge).
//
// Workers run in the test's own process, on a clock that can be moved and on
// sockets that can fail (world_test.go, sick_test.go). The rows about processes
// and signals build the real binary; those about the host's network make
// namespaces, which takes root.
//
// Each row states the outcome (a counter, a broken ring, a refused message, a
// closed connection, a reset) and then checks the two promises that hold for
// all: the worker still serves a guest, and no descriptor has leaked.
package hostile
