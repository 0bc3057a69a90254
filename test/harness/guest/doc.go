// Package guest boots real guests and runs commands in them: QEMU (KVM where a guest really boots with it, else TCG) with Debian's newest cloud kernel, and
// User Mode Linux, a Linux kernel at native speed that speaks vhost-user without any virtual hardware.
//
// Both run the same static program (test/harness/guestprog) as their agent: QEMU on a second serial port, UML on a second console. A guest has a deadline
// for its boot and each command one of its own. The console of a guest is kept in a file; failing tests show its end.
//
// QEMU's root is an initramfs of busybox, the kernel's modules and the agent. UML's root is the shared Debian tree, read through hostfs; what a guest
// writes goes to its own tmpfs mounts over /run, /tmp and the files that network clients rewrite.
package guest
