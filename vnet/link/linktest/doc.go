// Package linktest holds the fakes of the link seam: Endpoint stands in for a
// device (so that translation is tested without rings) and Handler stands in
// for translation (so that devices are tested without sockets).
//
// Who calls it: tests only, on one goroutine, like the real things.
//
// What it trusts: nothing. Endpoint holds its caller to the contract of
// link.Endpoint and fails the test on every breach: a second reservation while
// one is open, Commit without one, a frame that was not offered in Caps (GSO,
// checksum offload, longer than the MTU), Used beyond the reserved payload, or
// more than link.MaxHeader bytes of header. Slot memory is poisoned after
// Commit, so that a handler that keeps it shows.
//
// Limits: none but Endpoint.Room; recorded frames are kept until Reset.
//
// What it deliberately does not do: no rings, no offload work, no time.
package linktest
