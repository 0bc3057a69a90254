package dns

import "strings"

// Limits of RFC 1035 2.3.4, bytes.
const (
	maxLabel = 63
	maxName  = 255 // on the wire, root label included
)

// AppendName appends a domain name in wire form (RFC 1035 3.1) without
// compression. ok is false, and b returned as it was, when s is none.
func AppendName(b []byte, s string) (out []byte, ok bool) {
	s = strings.TrimSuffix(s, ".")
	if s == "" || len(s) > maxName-2 {
		return b, false
	}
	out = b
	for s != "" {
		label, rest, more := strings.Cut(s, ".")
		if label == "" || len(label) > maxLabel || more && rest == "" {
			return b, false
		}
		out = append(append(out, byte(len(label))), label...)
		s = rest
	}
	return append(out, 0), true
}
