// Package reasm puts the guest's IP fragments together again, so that what
// follows sees only whole datagrams.
//
// Who calls it: the translator, with fragments from admitted sources, on the
// loop; the wheel, to give up on what stays incomplete.
//
// What it trusts: the parser has checked each fragment by itself (offset and
// length within 65,535 bytes, all but the last a multiple of 8). Everything that
// concerns several fragments is judged here:
//
//   - fragments that overlap kill their datagram (RFC 5722, and the same for
//     IPv4: no sender of today makes them, they only serve to hide headers);
//     an exact duplicate of what is there is ignored (RFC 8200, 4.5);
//   - the first fragment must hold the L4 header (RFC 1858, RFC 7112);
//   - two different ends, or data behind the end, kill the datagram.
//
// Limits: Slots datagrams at a time, of at most 64 KiB; the oldest makes room.
// maxRuns holes in one datagram. 30 seconds (RFC 791 allows 15 to 120; Linux has
// 30), then it is dropped without a word, as the guest is on a link that loses
// nothing. Memory is taken for the slots in use, at most 4 MiB, and given back
// when no datagram is under way.
//
// What it deliberately does not do: send ICMP time exceeded for lost fragments.
package reasm
