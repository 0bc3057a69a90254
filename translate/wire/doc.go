// Package wire reads and writes the headers of a guest's frames.
//
// Who calls it: every translation room, on the worker's loop; the functions are
// pure and keep no state.
//
// What it trusts: nothing in the bytes. Parse copies the first 128 bytes of a
// frame once into Packet.Head and decides on that copy alone, since the guest
// may change its memory at any moment. Lengths come from Frame.Len and the
// lengths of Frame.Segs, which are private to us; a length in a header is
// believed only after it was compared with them. Payload bytes are read only to
// verify a checksum, and what the guest does to them afterwards is its own
// affair: they go to the kernel as they are then.
//
// Offsets (Packet.L4Off, Packet.PayloadOff) count from the first byte of the
// Ethernet header, in the frame and in Head alike: Head[p.L4Off:] is the L4
// header as long as it lies below HeadLen, which Parse guarantees for the
// headers it has parsed.
//
// Limits: all headers of a packet must lie in its first 128 bytes (else
// HeadersLong; Ethernet, IPv4 with 10 words of options and TCP with 8 words
// still fit); at most 8 IPv6 extension headers; at most 4 SACK blocks.
//
// Checksums are partial one's complement sums in network byte order (RFC 1071),
// carried as uint32: Checksum, ChecksumSegs and PseudoHeader produce and add to
// them, Fold reduces one to 16 bits, Finish gives the value of a header field.
//
// What it deliberately does not do: no policy (addresses, ports and TCP flag
// combinations are judged by the rooms above), no reassembly (translate/reasm),
// no VLANs, no 802.3 frames.
package wire
