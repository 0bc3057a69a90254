package guestmem

import (
	"errors"
	"fmt"
	"math"
	"sync/atomic"
)

// PageSize is what one bit of the dirty log stands for, whatever the host's own
// page size is (vhost-user, "Migration": VHOST_LOG_PAGE).
const PageSize = 4096

// Log is the dirty log of a live migration: one bit per page of guest memory,
// shared with the frontend, which clears bits while we set them. A nil Log
// swallows every Mark.
type Log struct {
	words []uint32 // little endian, so that bit p of the words is bit p of the bytes
	pages uint64   // pages the log has bits for
	m     *mapping
}

// MapLog maps the log that SET_LOG_BASE describes: size bytes of fd from offset.
// The caller keeps and closes fd.
func MapLog(fd int, size, offset uint64) (*Log, error) {
	if size == 0 {
		return nil, errors.New("dirty log is empty")
	}
	if offset+size < size || offset+size > math.MaxInt64 {
		return nil, fmt.Errorf("dirty log: offset %#x and size %#x exceed any file", offset, size)
	}
	if offset%4 != 0 {
		return nil, fmt.Errorf("dirty log: offset %#x is not a multiple of 4", offset)
	}
	m, mem, err := mapShared(fd, offset, size)
	if err != nil {
		return nil, fmt.Errorf("dirty log: %w", err)
	}
	return &Log{words: wordsOf(mem), pages: size * 8, m: m}, nil
}

// Covers reports whether the log has a bit for every page of t. A log that has
// not must be refused at SET_LOG_BASE.
func (l *Log) Covers(t *Table) bool {
	if t == nil || len(t.regions) == 0 {
		return true
	}
	last := &t.regions[len(t.regions)-1]
	return (last.GPA+last.Size-1)/PageSize < l.pages
}

// Mark sets the bits of the pages that the n bytes at gpa touch. Pages the log
// has no bit for are left out: the address may come from a device that a guest
// has misled.
func (l *Log) Mark(gpa, n uint64) {
	if l == nil || n == 0 {
		return
	}
	first, last := gpa/PageSize, (gpa+n-1)/PageSize
	if first >= l.pages || last < first {
		return
	}
	last = min(last, l.pages-1)
	for p := first; p <= last; p++ {
		// Always a locked OR, never "load and skip what is set": the data written
		// before must be visible before the bit is looked at, or the frontend
		// clears the bit, copies the old page, and the write is lost.
		atomic.OrUint32(&l.words[p/32], 1<<(p%32))
	}
}

// Close unmaps the log. Nothing may mark it afterwards. Closing twice, or a nil
// Log, is harmless.
func (l *Log) Close() {
	if l == nil || l.m == nil {
		return
	}
	l.words, l.pages = nil, 0
	l.m.release()
	l.m = nil
}
