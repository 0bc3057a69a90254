package forward

import (
	"fmt"
	"net/netip"
)

// conflict says that two rules want the same local port in a way that the
// kernel refuses (inet_bind_conflict): same protocol, addresses that cover each
// other, and not held apart by two different interfaces. A weak rule gives way
// instead of conflicting.
func conflict(a, b *Rule) bool {
	return a.Proto == b.Proto && !a.Weak && !b.Weak &&
		a.First != 0 && b.First != 0 && a.First <= b.Last && b.First <= a.Last &&
		(a.Device == b.Device || a.Device == "" || b.Device == "") &&
		covers(a.local(), b.local())
}

// local returns the address the rule listens on. A target address of one IP
// version narrows "every address" to that version.
func (r *Rule) local() netip.Addr {
	switch {
	case r.Addr.IsValid() || !r.ToAddr.IsValid():
		return r.Addr
	case r.ToAddr.Is4():
		return netip.IPv4Unspecified()
	default:
		return netip.IPv6Unspecified()
	}
}

func covers(a, b netip.Addr) bool {
	if !a.IsValid() || !b.IsValid() {
		return true
	}
	return a == b || a.Is4() == b.Is4() && (a.IsUnspecified() || b.IsUnspecified())
}

// CheckOverlap reports the first two rules that cannot both be had.
func CheckOverlap(rules []Rule) error {
	for i := range rules {
		for j := range rules[:i] {
			if conflict(&rules[j], &rules[i]) {
				return fmt.Errorf("port forwards %s and %s overlap: each local port can lead to one place", rules[j], rules[i])
			}
		}
	}
	return nil
}

// overlap is CheckOverlap for the rules of one specification.
func (p *parser) overlap(rules []Rule) error {
	if err := CheckOverlap(rules); err != nil {
		return p.errorf(0, "%v", err)
	}
	return nil
}
