// Package vring is the split virtqueue of virtio 1.3, section 2.7, both sides
// over one layout: DeviceQueue serves a driver that is not trusted, DriverQueue
// feeds a device (vhost-net, tests, load generators).
//
// Who calls it: devices (vnet) and vhostuser, on the one loop that owns the
// queue. Nothing here may be used from two goroutines, blocks, reads a clock or,
// in steady state, allocates.
//
// # A batch
//
//	PopBatch   read avail.idx once (acquire), copy heads and descriptors, check, translate
//	Push       note the chain as used; the ring is untouched
//	Publish    write used elements, then used.idx (release), decide on one call;
//	           PublishQuietly leaves the decision to a later Signal
//	ArmKick    ask for a kick, fence, look once more; only then sleep
//	Insist     call again, where calls get lost (User Mode Linux)
//
// Chains leave in the order they came, whether IN_ORDER is negotiated or not.
// Rewind gives back the newest ones, so a device may take more than it turns out
// to need. With IN_ORDER a run of chains without a writable part is returned by
// one used element (2.7.9); receive chains always get one each.
//
// # What is trusted
//
// Nothing that lies in shared memory. Every field is fetched once into a private
// copy, and all decisions are made on the copy at full width. A chain comes out
// of Pop checked: heads and next in range, steps counted, every byte inside
// guest memory (cut where regions meet), readable before writable, fewer than
// 2^32-1 bytes (a longer one comes as Oversize), indirect tables negotiated, not
// nested, not chained, at most max(Size, 1024) descriptors, and wherever they
// lie. Empty buffers are skipped; a chain of nothing else is popped with no
// segments. What a chain is for, and
// so its direction and least length, is for the device to check. The bytes behind
// the segments stay the guest's and change at any time.
//
// # States
//
// A queue works from New until it breaks: by the driver (one of the Reasons up to
// IndirectAddress), by a memory fault that the loop's guard caught (Break), or by
// the device completing out of order, which is a bug of ours. A broken queue
// signals err once, keeps its first BrokenError, and touches neither the ring nor
// guest memory again; only a new queue revives the ring. Faults of mapped memory
// are not caught here; the queue's own state is consistent at every access that
// may fault.
//
// Two indices exist at the start: Config.Base says where to go on popping,
// used.idx in memory where to go on publishing. They differ when chains were
// popped and never returned by a backend before; the driver does not get those
// back unless Reclaim returns them.
//
// # Ordering
//
// Index words are loaded with acquire and stored with release (sync/atomic). A
// full fence stands at the four places where a store must be visible before a
// load: device, used.idx before used_event; device, avail_event before avail.idx;
// and the two mirror ones of the driver. The litmus tests race each of them on
// two threads; without its fence each fails.
//
// # Limits
//
//	ring size               1..32768 entries, a power of two
//	chains in flight        the ring size, those not yet published included
//	segments in flight      32 per entry, at least 4096, at most 65536 (1.5 MiB);
//	                        Pop pauses there until Publish, a single longer chain breaks
//	indirect table          max(ring size, 1024) descriptors
//	first publish           always calls; after that used_event and flags decide
//	calls by Insist         3 for one call: after 200 us, 1.6 ms, 12.8 ms
//
// # What it deliberately does not do
//
// No packed rings (VIRTIO_F_RING_PACKED is not offered, so hostile row R25 has no
// subject), no legacy byte order (hosts are little endian, rings VERSION_1), no
// queue reset detection, no completion out of order, no descriptors of its own:
// it closes none of the file descriptors it is given.
package vring
