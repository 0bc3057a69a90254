package guestmem

import "unsafe"

// wordsOf views b, which is 4-aligned, as 32-bit words. The last word may reach
// up to three bytes behind b; a mapping always ends at a page, so they are
// there, and only ever get a zero OR-ed in.
func wordsOf(b []byte) []uint32 {
	return unsafe.Slice((*uint32)(unsafe.Pointer(unsafe.SliceData(b))), (len(b)+3)/4)
}
