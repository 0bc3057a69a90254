// Package reasm puts the guest's IP fragments together again (RFC 791, RFC 8200
// 4.5), so that the rooms above see whole datagrams only.
//
// Who calls it: the translator, for every Packet with Frag set, on the worker's
// loop. A completed datagram comes back as a link.Frame over memory of our own,
// to be parsed anew; it is valid until the next Input.
//
// # A datagram's life
//
//	free -> collecting -> complete (handed out, free)
//	             |-> dead (an overlap or a lie about the length) -> free after 30 s
//	             +-> free (30 s, or the oldest when a slot is needed)
//
// A dead datagram keeps its slot, so that its later fragments find it and begin
// nothing new.
//
// What it trusts: wire.Parse has checked that a fragment lies inside its frame
// and has 8-byte granularity. Everything else is judged here: any overlap, even an
// exact repetition, kills the datagram (RFC 5722); so does a second, different
// end, data behind the end, data beyond what the length field can tell, and a first fragment
// too short for its L4 header (RFC 7112, RFC 3128). Checksums are verified when
// the whole is parsed.
//
// Limits: 64 datagrams at a time, 64 KiB of memory each, made when needed; 30 s.
// A flood can push out other datagrams that are in the making, and no more.
//
// What it does not do: no IPv4 options and no IPv6 extension headers from in
// front of the fragment header survive. No "reassembly time exceeded" errors.
package reasm
