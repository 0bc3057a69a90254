// Package fault makes a link bad on purpose, for tests: it loses, duplicates,
// reorders and corrupts frames, and stalls, in either direction, the same way
// for the same seed.
//
// A Link sits between a device and its handler and is each to the other, like
// pcap.Capture. Both sides call it on the loop. It copies every frame it touches
// and allocates: it is no part of a production path.
//
// Faults of one frame are drawn in this order: loss, corruption (one flipped bit
// behind the Ethernet header; with offloads the flip may go unnoticed, as there
// is no checksum that could tell), duplication, holding back. A frame held back
// is delivered behind the Held'th frame after it, or at Release.
//
// Stalls are commanded, not drawn. While the direction towards the guest is
// stalled, Reserve returns no slots, and Writable follows when it ends; frames
// from the guest are kept, at most MaxKept of them, and delivered in one batch.
//
// What it deliberately does not do: no rates, no delays in time, no clock.
package fault
