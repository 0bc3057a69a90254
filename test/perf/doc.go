// Perf compares guestwire with passt on this machine, in one run: the same guests, the same clients (iperf3, netperf, DPDK testpmd), the two daemons
// alternating; its vsock device is compared with vhost-device-vsock. What it prints are the medians over the rounds and the medians of the per-round ratios;
// the ratios are what may be compared between machines.
//
//	perf [-rounds N] [-seconds N] [-only uml,qemu,testpmd,vsock,netns,vhostnet,redirect] [-kinds guestwire,peer] [-binary PATH]
//
//	uml      User Mode Linux over vhost-user: TCP each way at MTU 1500 and 65520 with the daemon's CPU time, UDP with its loss, request-response
//	qemu     QEMU, vhost-user and -netdev stream of both daemons
//	testpmd  DPDK's virtio-user sending 1,400-byte datagrams in 1 and 1,000 flows, counted at a socket
//	vsock    both guests: writes of 4 KiB to 1 MiB each way, round trips, short connections, what a MiB costs in packets, calls and system calls
//	netns    a namespace on this machine, against pasta: TCP each way at MTU 1500 and 65520, the way between the loopbacks, request-response, HTTP
//	vhostnet the same TCP inside a QEMU guest, whose kernel has vhost-net: guestwire with it and without, and pasta
//	redirect a UNIX socket of a QEMU guest led to the host by the agent, by its ways, and by socat: datagrams and a stream, of 64 and 4 KiB
//
// It is a benchmark, not a test: nothing is asserted. Progress goes to standard error, the Markdown table to standard output.
package main
