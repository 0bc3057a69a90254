package forward

import (
	"fmt"
	"net/netip"
	"strings"
)

// parser walks one specification by position, so that every error can name
// its column.
type parser struct{ spec string }

func (p *parser) errorf(pos int, format string, a ...any) error {
	return &SpecError{Spec: p.spec, Column: pos + 1, What: fmt.Sprintf(format, a...)}
}

// address reads the optional ADDR[%IF]/ into r and returns where RANGES starts.
//
// A slash may also belong to a target address (8080:10.0.2.99/80). What stands
// before the first slash is a local address if it reads as one, and a list of
// ports if it has nothing but ports up to its first colon.
func (p *parser) address(r *Rule) (int, error) {
	slash := strings.IndexByte(p.spec, '/')
	if slash < 0 {
		if p.spec[0] == '[' || p.spec[0] == '%' {
			return 0, p.errorf(len(p.spec), `"/" and ports must follow the address, as in %s/8080`, p.spec)
		}
		return 0, nil
	}
	text, device, hasDevice := strings.Cut(p.spec[:slash], "%")
	if hasDevice {
		if err := p.device(len(text)+1, device); err != nil {
			return 0, err
		}
		r.Device = device
	}
	if text == "" {
		if !hasDevice {
			return 0, p.errorf(0, `an address or %%INTERFACE must stand before "/"`)
		}
		return slash + 1, nil
	}
	addr, ok := parseAddr(text)
	switch {
	case ok:
		if !strings.HasPrefix(text, "[") && addr.Is6() && !assigned(addr) {
			return 0, p.errorf(0, "ambiguous: for the local address write [%s]/..., for a target address write PORT:[ADDR]/PORT", text)
		}
		r.Addr = addr
		return slash + 1, nil
	case !hasDevice && portsBeforeColon(text):
		return 0, nil
	case portsOnly(text):
		return 0, p.errorf(0, `%q is not an address; to forward port %s to another port write %s:PORT`, text, text, text)
	}
	return 0, p.errorf(0, "%q is not an IP address (names are not looked up)", text)
}

// device checks an interface name: what IFNAMSIZ (16 with the final NUL) and
// dev_valid_name leave.
func (p *parser) device(pos int, name string) error {
	if name == "" || len(name) > 15 || name == "." || name == ".." || strings.ContainsAny(name, ": \t\n\r\v\f\x00") {
		return p.errorf(pos, "%q is not an interface name (1 to 15 characters)", name)
	}
	return nil
}

// parseAddr reads an address, in brackets or plain, without zone.
func parseAddr(s string) (netip.Addr, bool) {
	inner, bracketed := s, false
	if len(s) >= 2 && s[0] == '[' && s[len(s)-1] == ']' {
		inner, bracketed = s[1:len(s)-1], true
	}
	a, err := netip.ParseAddr(inner)
	if err != nil || a.Zone() != "" || bracketed && a.Is4() {
		return netip.Addr{}, false
	}
	return a.Unmap(), true
}

// assigned says that an IPv6 address lies where addresses of hosts lie. The rest
// is what PORT:ADDR without brackets looks like: 8080:fd00::1.
func assigned(a netip.Addr) bool {
	b := a.As16()
	return a.IsUnspecified() || a.IsLoopback() || b[0]>>5 == 1 || a.IsPrivate() || a.IsLinkLocalUnicast() || a.IsMulticast()
}

func portsBeforeColon(s string) bool {
	ports, _, ok := strings.Cut(s, ":")
	return ok && portsOnly(ports)
}

func portsOnly(s string) bool {
	return s != "" && strings.Trim(s, "0123456789-,~") == ""
}

// items reads RANGES from pos on.
func (p *parser) items(pos int, base Rule) (rules []Rule, exclude []portRange, err error) {
	if p.spec[pos:] == "all" {
		return nil, nil, nil
	}
	for n, item := range strings.Split(p.spec[pos:], ",") {
		if n == maxItems {
			return nil, nil, p.errorf(pos, "more than %d ranges: repeat the option instead", maxItems)
		}
		if ports, ok := strings.CutPrefix(item, "~"); ok {
			first, last, err := p.ports(pos+1, ports)
			if err != nil {
				return nil, nil, err
			}
			if first == 0 {
				return nil, nil, p.errorf(pos+1, "port 0 cannot be left out: exclusions are 1 to 65535")
			}
			exclude = append(exclude, portRange{first, last})
		} else {
			r, err := p.item(pos, item, base)
			if err != nil {
				return nil, nil, err
			}
			rules = append(rules, r)
		}
		pos += len(item) + 1
	}
	return rules, exclude, nil
}

// item reads first[-last][:target].
func (p *parser) item(pos int, item string, r Rule) (Rule, error) {
	from, target, hasTarget := strings.Cut(item, ":")
	var err error
	if r.First, r.Last, err = p.ports(pos, from); err != nil {
		return r, err
	}
	r.ToFirst = r.First
	if hasTarget {
		return p.target(pos+len(from)+1, target, r)
	}
	if r.First == 0 {
		return r, p.errorf(pos, "port 0 (any free port) needs a port in the guest, as in 0:80")
	}
	return r, nil
}

// target reads [[toaddr]/]tofirst[-tolast].
func (p *parser) target(pos int, text string, r Rule) (Rule, error) {
	if slash := strings.LastIndexByte(text, '/'); slash >= 0 {
		addr, ok := parseAddr(text[:slash])
		switch {
		case slash == 0 || text[:slash] == "[]": // the guest's own address
		case !ok:
			return r, p.errorf(pos, "%q is not an IP address (IPv6 in brackets)", text[:slash])
		case addr.IsUnspecified() || addr.IsMulticast() || addr.IsLoopback():
			return r, p.errorf(pos, "%s is no address that the guest can be reached at", addr)
		case r.Addr.IsValid() && r.Addr.Is4() != addr.Is4():
			return r, p.errorf(pos, "%s and %s are of different IP versions", r.Addr, addr)
		default:
			r.ToAddr = addr
		}
		pos, text = pos+slash+1, text[slash+1:]
	}
	first, last, err := p.ports(pos, text)
	if err != nil {
		return r, err
	}
	if first == 0 {
		return r, p.errorf(pos, "port 0 is no port in the guest: give 1 to 65535")
	}
	if last-first != r.Last-r.First {
		return r, p.errorf(pos, "target ports %d-%d are %d but the local range has %d: the two must be equally long",
			first, last, int(last)-int(first)+1, r.Ports())
	}
	r.ToFirst = first
	return r, nil
}

// ports reads N or N-M.
func (p *parser) ports(pos int, text string) (first, last uint16, err error) {
	a, b, isRange := strings.Cut(text, "-")
	if first, err = p.port(pos, a); err != nil || !isRange {
		return first, first, err
	}
	if last, err = p.port(pos+len(a)+1, b); err != nil {
		return 0, 0, err
	}
	if first == 0 {
		return 0, 0, p.errorf(pos, "port 0 (any free port) cannot begin a range: give 1 to 65535, or repeat 0:PORT")
	}
	if last < first {
		return 0, 0, p.errorf(pos, "the range runs backwards: write %d-%d", last, first)
	}
	return first, last, nil
}

func (p *parser) port(pos int, text string) (uint16, error) {
	if text == "" {
		return 0, p.errorf(pos, "a port is missing here: give a number from 1 to 65535")
	}
	n := 0
	for i := 0; i < len(text); i++ {
		if text[i] < '0' || text[i] > '9' {
			return 0, p.errorf(pos+i, "%q is not a port: give a number from 1 to 65535%s", text, hint(text))
		}
		if n = n*10 + int(text[i]-'0'); n > 65535 {
			return 0, p.errorf(pos, "port %s is out of range: ports end at 65535", text)
		}
	}
	return uint16(n), nil
}

// hint adds what people mean who write this.
func hint(text string) string {
	switch text {
	case "all", "none":
		return fmt.Sprintf("; %q must stand alone", text)
	case "auto":
		return `; "auto" needs a namespace to watch, a virtual machine's ports cannot be seen: name them`
	}
	return ""
}
