// Package hostsock is every socket that is opened on behalf of a guest: TCP, UDP
// and ping sockets, dialled or listening, and nothing else talks to the host's
// network stack for a guest.
//
// Host is the seam; Kernel is the real one, hostsocktest.Kernel a scripted fake
// that passes the same conformance tests.
//
// # Who calls it
//
// The translators of one guest, on the loop goroutine. A Kernel owns its message
// headers, vectors, addresses and control buffers, which is why it allocates
// nothing per call and must not be used by two goroutines.
//
// # How it calls the kernel
//
// Every descriptor is non-blocking, so every call goes through RawSyscall: the
// scheduler is not told, and a call costs what the system call costs. Payload is
// passed as the caller's slices, which may be guest memory: the kernel copies
// from and to it, and memory that has vanished is EFAULT, not a fault.
//
// # What it trusts
//
// Its callers (descriptors are those that it returned). It does not trust the
// contents of a buffer, nor peers: lengths and control messages come from the
// kernel.
//
// # Behaviour that all its users rely on
//
//   - TCP: TCP_NODELAY and SO_OOBINLINE always. Where the kernel has SO_PEEK_OFF for TCP (IPv4 from
//     Linux 6.9, IPv6 from 6.11) the peek offset is on and 0 from the start. A
//     write to a closed peer is EPIPE, never a signal.
//   - UDP: one Send of a run of equal datagrams (SegSize) is one UDP_SEGMENT
//     message. Where the kernel or the device refuses that, the run is sent as
//     single datagrams, and after EIO (no checksum offload on the way) the socket
//     does not try again. UDP_GRO, RECVERR, TTL and TOS are on for every UDP
//     socket, PKTINFO for those of Listen.
//   - Ping: the identifier is the local port (LocalAddr); the kernel overwrites
//     the identifier and checksum of what is sent.
//   - ICMP errors for UDP and ping wait in the error queue (Errors), and the next
//     Send or Recv reports the errno once, without having done anything.
//   - Addresses are unmapped: IPv4 is IPv4, whatever the family of the socket.
//
// # Limits
//
// 1024 buffers per call, 64 datagrams per system call. At most a budget of
// descriptors at once (NewKernel: RLIMIT_NOFILE less 64; SetMaxFDs); beyond it
// Dial, Listen and Accept return EMFILE and nothing established suffers. One
// descriptor is kept back so that Refuse can turn a waiting connection away.
//
// # What it does not do
//
// No policy (translate/forward), no retries, no timers, no buffers of data.
package hostsock
