package wire

// Seq is a TCP sequence number: arithmetic modulo 2^32 (RFC 9293 3.4). Two
// numbers are comparable while they are less than 2^31 apart.
type Seq uint32

// Less says whether s comes before t.
func (s Seq) Less(t Seq) bool { return int32(s-t) < 0 }

// LessEq says whether s comes before t or is t.
func (s Seq) LessEq(t Seq) bool { return int32(s-t) <= 0 }

// Add is the number n bytes behind s; n may be negative.
func (s Seq) Add(n int) Seq { return s + Seq(n) }

// Diff is the signed distance from t to s: positive when s is ahead.
func (s Seq) Diff(t Seq) int32 { return int32(s - t) }

// InWindow says whether s lies in [first, first+size).
func (s Seq) InWindow(first Seq, size uint32) bool { return uint32(s-first) < size }

// Max is the later of s and t.
func (s Seq) Max(t Seq) Seq {
	if s.Less(t) {
		return t
	}
	return s
}

// Min is the earlier of s and t.
func (s Seq) Min(t Seq) Seq {
	if s.Less(t) {
		return s
	}
	return t
}
