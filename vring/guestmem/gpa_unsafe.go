package guestmem

import "unsafe"

// GPA returns the guest address of b, a slice that this table gave out. The
// dirty log needs the way back.
func (t *Table) GPA(b []byte) (uint64, bool) {
	if t == nil || len(b) == 0 {
		return 0, false
	}
	at := uintptr(unsafe.Pointer(unsafe.SliceData(b)))
	for i := range t.regions {
		r := &t.regions[i]
		base := uintptr(unsafe.Pointer(unsafe.SliceData(r.mem)))
		if at >= base && uint64(at-base) < r.Size {
			return r.GPA + uint64(at-base), true
		}
	}
	return 0, false
}
