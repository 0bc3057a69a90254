// Package pcap records the frames that cross the link seam, both directions, as
// a pcapng file for Wireshark and tcpdump.
//
// A Capture sits between a device and its handler and is each to the other: the
// device is given the Capture as its link.Handler, and the Capture hands itself
// on as the link.Endpoint. Both sides call it on the loop.
//
// What is recorded is what crossed the seam. With offloads that is not what a
// wire would carry: super-frames of up to 64 KiB are recorded whole, and their
// checksum fields, and those of any frame with Offload.NeedsCsum, hold only the
// sum of the pseudo-header (in Wireshark: turn checksum validation off, or run
// with the offloads withheld). The direction is in each packet's flags, as the
// guest sees it: inbound is towards the guest.
//
// What it trusts: as much as link does. Frames from the guest are read once more
// for the record, so a guest that rewrites them meanwhile can make the record
// differ from what was acted on, and nothing else.
//
// Limits: Config.Snap bytes of a frame; Config.Size bytes of file, after which
// recording ends; one buffer of 256 KiB, written in one call when full and at
// Flush. A write error ends the recording, never the traffic.
//
// What it deliberately does not do: no filtering, no rotation, no clock and no
// files of its own; the writer may block the loop for as long as its file does.
package pcap
