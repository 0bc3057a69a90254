package guestmem

import "errors"

// MaxRegions is the most regions a Table holds (and the number of memory slots
// a backend may advertise).
const MaxRegions = 509

// Region describes one stretch of guest memory as SET_MEM_TABLE and
// ADD_MEM_REG carry it.
type Region struct {
	GPA        uint64 // guest physical address
	UVA        uint64 // the frontend's own address of the same bytes
	Size       uint64 // bytes
	MmapOffset uint64 // where the region starts in the file
	FD         int    // the file; stays the caller's
}

// Table is an immutable set of mapped regions.
type Table struct{}

var errTodo = errors.New("guestmem: not implemented")

func Map(regions []Region) (*Table, error)                            { return nil, errTodo }
func FromBytes(gpa, uva uint64, mem []byte) *Table                    { return &Table{} }
func (t *Table) Add(r Region) (*Table, error)                         { return nil, errTodo }
func (t *Table) Remove(r Region) (*Table, error)                      { return nil, errTodo }
func (t *Table) Slice(gpa, n uint64) []byte                           { return nil }
func (t *Table) Append(segs [][]byte, gpa, n uint64) ([][]byte, bool) { return segs, false }
func (t *Table) UserSlice(uva, n uint64) []byte                       { return nil }
func (t *Table) Regions() []Region                                    { return nil }
func (t *Table) Close()                                               {}

// Log is the dirty log of a live migration.
type Log struct{}

func MapLog(fd int, size, offset uint64) (*Log, error) { return nil, errTodo }
func (l *Log) Mark(gpa, n uint64)                      {}
func (l *Log) Close()                                  {}
