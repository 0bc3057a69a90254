// Package lab brings what the tests with real guests need onto a Debian machine: packages (by name, through apt), and below ${XDG_CACHE_HOME:-~/.cache}/guestwire
//
//	tree-*    a Debian "forky" tree: root of the UML guests and home of the peers (passt, iperf3, netperf, socat, vhost-device-vsock, QEMU, ssh with
//	          systemd-ssh-proxy); User Mode Linux in /opt/guestwire
//	kernel-*  Debian's newest cloud kernel (trixie-backports) with its modules, as an initramfs for QEMU
//	dpdk-*    testpmd with virtio-user, the guest without a guest
//	vsock-*   vsock_test, vsock_perf and vsock_diag_test of the kernel's source, static
//	accel     whether a guest really boots under KVM here
//
// Prepare may be called by any number of processes at once (one works, the others wait) and be interrupted at any point: each part is built beside its
// final name and renamed when it is complete, and downloaded packages are kept. It changes nothing on the machine but the installed packages and the cache.
// The Debian mirror is the one of the machine's own apt configuration.
package lab
