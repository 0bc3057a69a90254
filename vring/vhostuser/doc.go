// Package vhostuser speaks the vhost-user protocol (QEMU, docs/interop/vhost-user.rst),
// both ends of it: a Server that serves a Device to a VMM, and a Frontend, the
// VMM's end, for tests and load generators.
//
// # The server
//
// What it is for: it meets frontends on a unix socket, agrees with them on
// features, maps guest memory, builds a vring.DeviceQueue for every ring and
// hands it to the Device, from whose side none of that shows: it sees rings
// start, kick and stop.
//
// Who calls it: the loop. The listener, the connection and every ring's kick
// descriptor are Sources of it, the deadlines are timers of its wheel; nothing
// blocks and there is no goroutine. NewServer, Close, State, Break and
// ConfigChanged are called on the loop's goroutine too.
//
// What it trusts: its configuration and its Device. The frontend is not trusted,
// nor is the guest. A message is cut out of the stream whole, with its
// descriptors, before anything looks at it; requests.go says in one table what
// each may carry; numbers are judged at full width before they are narrowed; what
// is refused changes nothing. Every descriptor of a message that no handler has
// taken is closed when the message has been handled, on every path. One thing a
// frontend can still do: take O_NONBLOCK off the call eventfd that it shares with
// us, and saturate it. That stops the loop, and with it its own guest and the
// siblings on that loop, until somebody reads the eventfd or kills the process.
//
// # Outcomes
//
// A message has one of three:
//
//	done     the reply it has by itself, or with NEED_REPLY a 0
//	refused  NACK: with NEED_REPLY a 1, else counted; the session goes on
//	fatal    the connection is closed, what it brought is closed and unmapped, and
//	         the next frontend is awaited: lost framing (version, flags, length,
//	         wrong number of descriptors), a stall of 5 s inside a message or a
//	         reply, a malformed or unknown request that asked for no
//	         acknowledgement, a request with a reply of its own that cannot be
//	         answered (GET_VRING_BASE of a ring that does not exist)
//
// A ring that its driver spoils breaks alone (vring.BrokenError, err descriptor).
// A call into the Device that panics, or touches memory that has gone, breaks all
// rings and starts none for 11 s: a second fault within ten would end the loop.
//
// # Messages
//
//	served    1-21 (all of GET/SET_FEATURES to SET_BACKEND_REQ_FD), GET/SET_CONFIG,
//	          RESET_DEVICE, GET_MAX_MEM_SLOTS, ADD/REM_MEM_REG, SET/GET_STATUS
//	refused   IOTLB_MSG, SET_VRING_ENDIAN, crypto, postcopy, inflight, GPU,
//	          VRING_KICK (in-band), shared objects, device state, shared memory
//
// Some mean less than their names: SET_OWNER nothing (QEMU sends half a dozen
// requests before it), RESET_OWNER that all rings are disabled (as the
// specification now recommends), SET_LOG_FD that the descriptor is signalled ten
// times a second while logging is on.
//
// # Rings
//
// RingState.Step is the life of a ring:
//
//	          size, addresses and kick known          memory has all of it
//	stopped ----------------------------> waiting <--------------------> running
//	   ^                                     |                              |
//	   +------------- GET_VRING_BASE --------+------------------------------+
//	   +------------- GET_VRING_BASE ------------- broken <-----------------+
//
// Being enabled is apart from all that. A ring does not wait for a first kick,
// and one without a kick descriptor is looked at every millisecond. SET_VRING_NUM
// and SET_VRING_BASE are refused while it runs enabled; disabled they stop it,
// since user mode Linux says no other goodbye. Its addresses are translated anew
// at every change of memory. It starts at the used index that the ring itself
// has, which is the base unless a backend died over it.
//
// A guest that starts anew shows by RESET_DEVICE or, where the frontend has not
// got that, by setting a ring up from 0 that had come further. Status 0 alone
// does not mean it: QEMU sends it to pause a guest.
//
// # Limits
//
//	frontends          1; a second is refused while the first lives
//	queues             256
//	payload            4096 bytes; 8 descriptors a message
//	memory regions     8 in SET_MEM_TABLE, 509 by ADD_MEM_REG
//	config space       256 bytes
//	unsent replies     1; while there is one nothing is read
//	messages           32 a turn
//	memory             about 6 KiB beside the rings
//
// # The frontend
//
// Frontend is a blocking client with a method for every message, and Raw for what
// is no message. It belongs to one goroutine, which is not the loop's. It trusts
// nothing it reads, and waits for no reply longer than ReplyTimeout.
//
// # What it deliberately does not do
//
// No packed rings, no IOMMU (IOTLB), no postcopy, no inflight log (rings are
// completed in order, so their used index says everything), no device state.
// Memory in a FUSE file may stall the loop at a page fault. What the bits of the
// virtio device mean is the Device's affair.
package vhostuser
