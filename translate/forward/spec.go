package forward

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"

	"guestwire/translate/hostsock"
)

// Rule is one inbound forward: the local ports First to Last at Addr lead to
// the guest's ports from ToFirst on.
type Rule struct {
	Proto       hostsock.Proto // TCP or UDP
	Addr        netip.Addr     // local address; invalid: every address of the families in use
	Device      string         // only what arrives on this interface, "" for any
	First, Last uint16         // local ports; 0 and 0: one port of the kernel's choice
	ToAddr      netip.Addr     // address in the guest; invalid: the guest's own
	ToFirst     uint16         // guest port that First leads to
	Weak        bool           // ports that cannot be had are skipped without an error
}

// Target returns the guest port that local port p, one of the rule's, leads to.
func (r *Rule) Target(p uint16) uint16 { return r.ToFirst + (p - r.First) }

// Ports returns how many local ports the rule has.
func (r *Rule) Ports() int { return int(r.Last) - int(r.First) + 1 }

// String writes the rule in the grammar that ParseSpec reads.
func (r Rule) String() string {
	var b strings.Builder
	switch {
	case r.Addr.Is6():
		b.WriteString("[" + r.Addr.String() + "]")
	case r.Addr.IsValid():
		b.WriteString(r.Addr.String())
	}
	if r.Device != "" {
		b.WriteString("%" + r.Device)
	}
	if b.Len() > 0 {
		b.WriteByte('/')
	}
	writeRange(&b, r.First, r.Last)
	b.WriteByte(':')
	switch {
	case r.ToAddr.Is6():
		b.WriteString("[" + r.ToAddr.String() + "]/")
	case r.ToAddr.IsValid():
		b.WriteString(r.ToAddr.String() + "/")
	}
	writeRange(&b, r.ToFirst, r.Target(r.Last))
	return b.String()
}

func writeRange(b *strings.Builder, first, last uint16) {
	fmt.Fprintf(b, "%d", first)
	if last != first {
		fmt.Fprintf(b, "-%d", last)
	}
}

// SpecError says what is wrong with a port specification, where, and what
// would be right.
type SpecError struct {
	Spec   string
	Column int // first character that does not fit, counted from 1
	What   string
}

func (e *SpecError) Error() string {
	return fmt.Sprintf("port specification %q, column %d: %s", e.Spec, e.Column, e.What)
}

// Limits of a specification.
const (
	maxSpec  = 16 << 10 // bytes
	maxItems = 1024     // ranges and exclusions
)

// Grammar is what a specification's reader has to know besides the text.
type Grammar struct {
	// EphemeralFirst to EphemeralLast are the host's own ephemeral ports
	// (net.ipv4.ip_local_port_range). "all" leaves them out: the host picks them
	// for its outbound connections.
	EphemeralFirst, EphemeralLast uint16
}

// DefaultGrammar has Linux's default ephemeral ports.
var DefaultGrammar = Grammar{32768, 60999}

// ParseSpec reads one -t or -u argument with the default ephemeral ports:
//
//	none | all | [ADDR[%IF]/]RANGES
//	RANGES:  comma list of  first[-last][:[[toaddr]/]tofirst[-tolast]]  and  ~N[-M]
//
// ~N[-M] leaves ports out; a list of nothing else means all but those. Port 0 as
// first lets the kernel choose. An IPv6 toaddr stands in brackets.
func ParseSpec(proto hostsock.Proto, spec string) ([]Rule, error) {
	return DefaultGrammar.Parse(proto, spec)
}

// ParseSpecs reads all the -t (or all the -u) arguments of a command line and
// checks them against each other.
func (g Grammar) ParseSpecs(proto hostsock.Proto, specs []string) ([]Rule, error) {
	var all []Rule
	for _, s := range specs {
		rules, err := g.Parse(proto, s)
		if err != nil {
			return nil, err
		}
		if s == "none" && len(specs) > 1 {
			return nil, &SpecError{s, 1, `"none" contradicts the other port specifications: leave one or the other out`}
		}
		all = append(all, rules...)
	}
	if err := CheckOverlap(all); err != nil {
		return nil, err
	}
	return all, nil
}

// Parse is ParseSpec with the host's own ephemeral ports.
func (g Grammar) Parse(proto hostsock.Proto, spec string) ([]Rule, error) {
	p := parser{spec: spec}
	switch {
	case spec == "":
		return nil, p.errorf(0, `empty: give ports (8080, 8080:80, 2000-2010), "all" or "none"`)
	case len(spec) > maxSpec:
		return nil, p.errorf(maxSpec, "too long: at most %d characters; repeat the option instead", maxSpec)
	case spec == "none":
		return nil, nil
	}
	base := Rule{Proto: proto}
	body, err := p.address(&base)
	if err != nil {
		return nil, err
	}
	items, exclude, err := p.items(body, base)
	if err != nil {
		return nil, err
	}
	var rules []Rule
	if len(items) > 0 {
		for _, r := range items {
			rules = carve(rules, r, exclude)
		}
		if len(rules) == 0 {
			return nil, p.errorf(body, "the exclusions leave no port")
		}
		if err := p.overlap(rules); err != nil {
			return nil, err
		}
		return rules, nil
	}
	base.First, base.Last, base.ToFirst, base.Weak = 1, 65535, 1, true
	if g.EphemeralFirst <= g.EphemeralLast {
		exclude = append(exclude, portRange{g.EphemeralFirst, g.EphemeralLast})
	}
	rules = carve(nil, base, exclude)
	if len(rules) == 0 {
		return nil, p.errorf(body, "the exclusions leave no port")
	}
	return rules, nil
}

type portRange struct{ first, last uint16 }

// carve appends to rules what exclude leaves of r.
func carve(rules []Rule, r Rule, exclude []portRange) []Rule {
	if r.First == 0 {
		return append(rules, r)
	}
	sorted := slices.Clone(exclude)
	slices.SortFunc(sorted, func(a, b portRange) int { return int(a.first) - int(b.first) })
	next := int(r.First) // first port not yet decided on
	emit := func(last int) {
		if last > int(r.Last) {
			last = int(r.Last)
		}
		if next <= last {
			piece := r
			piece.First, piece.Last = uint16(next), uint16(last)
			piece.ToFirst = r.Target(piece.First)
			rules = append(rules, piece)
		}
	}
	for _, x := range sorted {
		emit(int(x.first) - 1)
		next = max(next, int(x.last)+1)
	}
	emit(int(r.Last))
	return rules
}
