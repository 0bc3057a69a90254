// Package hostcheck finds out what this host offers to guestwire, what is
// missing, and how to get it: the table of `guestwire check`.
//
// Who calls it: `guestwire check`, once, on the main goroutine. Each probe does
// the thing itself (opens the device, makes the socket) rather than reading
// version numbers, and leaves nothing behind.
package hostcheck
