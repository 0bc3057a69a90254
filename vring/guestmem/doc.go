// Package guestmem turns guest addresses into bytes: it maps the regions that a
// frontend shares (SET_MEM_TABLE, ADD_MEM_REG, REM_MEM_REG), translates guest
// physical and frontend user addresses to slices of them, and keeps the dirty
// log of a live migration.
//
// Who calls it: vhostuser builds tables, vring and devices translate. A Table
// never changes after it was made, so any goroutine may read one; a Cursor
// belongs to one queue on one loop. Tables share mappings by reference count:
// Add and Remove make a new Table, the old one stays good until its Close. The
// order at a change is therefore: make the new table, move every ring and
// Cursor to it between two batches, close the old one.
//
// What it trusts: nothing. Region fields are checked at full width (overflow,
// overlap in guest and user space, size of the file behind the descriptor, its
// type and access mode) before anything is mapped. The bytes belong to the
// guest: they change at any time, and a file that is truncated later faults
// (SIGBUS), which the event loop's guard turns into a broken device. Where the
// file takes seals it is sealed against shrinking, which rules that fault out.
//
// Limits: MaxRegions regions in a table; a region is at most the address space
// of the process; the log addresses pages of 4096 bytes.
//
// What it deliberately does not do: it closes no descriptor it did not open, it
// knows no IOTLB (addresses are guest physical, or user addresses for rings), and
// it does not protect against a file system that stalls page faults (FUSE).
package guestmem
