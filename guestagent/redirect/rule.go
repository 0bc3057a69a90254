package redirect

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/bridge"
)

// Rule leads clients of one address to another. One of the two is vsock.
type Rule struct {
	Text     string // as it was given
	From, To bridge.Address
	Path     Path // the one that was asked for, or Auto
}

// endKind is a kind of address in a rule: what it is called, and as which kinds of
// package bridge it listens and connects.
type endKind struct {
	name             string
	listens, dials   string
	typ              int // of the socket; 0 for vsock, which has that of the other end
	fromOpts, toOpts string
}

var endKinds = []endKind{
	{"unix", "unix-listen", "unix-connect", unix.SOCK_STREAM, "mode owner", "wait"},
	{"unix-dgram", "unix-recv", "unix-connect", unix.SOCK_DGRAM, "mode owner", "wait"},
	{"unix-seqpacket", "unix-listen", "unix-connect", unix.SOCK_SEQPACKET, "mode owner", "wait"},
	{"tcp", "tcp-listen", "tcp-connect", unix.SOCK_STREAM, "", "wait"},
	{"vsock", "vsock-listen", "vsock-connect", 0, "buffer", "wait buffer"},
}

// vsockBuffer is a vsock's receive buffer, unless a rule says otherwise: as much as
// the window of our own device. Newer kernels send no more at a time than they
// would receive, and by default that is 256 KiB.
const vsockBuffer = "buffer=1M"

// form is a rule cut in two: addresses may contain =, but not an = with the name
// of a kind behind it.
var form = regexp.MustCompile(`^(unix|unix-dgram|unix-seqpacket|tcp|vsock):(.*)=(unix|unix-dgram|unix-seqpacket|tcp|vsock):(.*)$`)

// mayRedirect says that a flow of the rule may be left to the kernel.
func (r *Rule) mayRedirect() bool {
	raw := r.From.Type == unix.SOCK_DGRAM && !r.To.Frame
	return r.Path == Sockmap || r.Path == Auto && raw
}

// Parse reads a rule: FROM=TO, each an address with options behind commas.
//
//	unix:/run/docker.sock,mode=0660=vsock:2:2375
//	unix-dgram:/run/log.sock=vsock:2:1234[,raw]
//	unix-seqpacket:/run/a.sock=vsock:2:1000,wait=30s
//	vsock:22=tcp:127.0.0.1:22
//	vsock:5000=unix:/run/app.sock,path=copy
func Parse(s string) (Rule, error) {
	r := Rule{Text: s}
	m := form.FindStringSubmatch(s)
	if m == nil {
		return r, fmt.Errorf("%q: a rule is FROM=TO, such as unix:/run/a.sock=vsock:2:1024 or vsock:22=tcp:127.0.0.1:22 (unix, unix-dgram, unix-seqpacket, tcp and vsock)", s)
	}
	from, to := kindOf(m[1]), kindOf(m[3])
	if (from.typ == 0) == (to.typ == 0) {
		return r, fmt.Errorf("%q: one of the two must be vsock", s)
	}
	left, lopts, _ := strings.Cut(m[2], ",")
	right, ropts, _ := strings.Cut(m[4], ",")
	own, ropts := ownOptions(ropts)
	if err := r.path(own); err != nil {
		return r, fmt.Errorf("%q: %w", s, err)
	}
	raw := slices.Contains(own, "raw")
	typ := max(from.typ, to.typ)
	if raw && typ != unix.SOCK_DGRAM {
		return r, fmt.Errorf("%q: raw is for datagrams", s)
	}
	var err error
	if r.From, err = address(from, from.listens, left, lopts, from.fromOpts, typ, raw); err == nil {
		r.To, err = address(to, to.dials, right, ropts, to.toOpts, typ, raw)
	}
	if err != nil {
		return r, fmt.Errorf("%q: %w", s, err)
	}
	return r, nil
}

func kindOf(name string) *endKind {
	return &endKinds[slices.IndexFunc(endKinds, func(k endKind) bool { return k.name == name })]
}

// ownOptions takes out those that are the rule's, and not an address's.
func ownOptions(s string) (own []string, rest string) {
	var others []string
	for _, o := range strings.Split(s, ",") {
		switch name, _, _ := strings.Cut(o, "="); {
		case name == "raw" || name == "path":
			own = append(own, o)
		case o != "":
			others = append(others, o)
		}
	}
	return own, strings.Join(others, ",")
}

func (r *Rule) path(own []string) error {
	for _, o := range own {
		name, value, has := strings.Cut(o, "=")
		if name == "raw" && has {
			return fmt.Errorf("option raw takes no value")
		}
		if name == "path" {
			i := slices.Index(pathNames[:], value)
			if i < 0 || !Path(i).wanted() {
				return fmt.Errorf("path=%s: use auto, sockmap, splice or copy", value)
			}
			r.Path = Path(i)
		}
	}
	return nil
}

// address makes one end in package bridge's words.
func address(k *endKind, kind, where, options, allowed string, typ int, raw bool) (bridge.Address, error) {
	words := []string{kind + ":" + where}
	if k.typ == 0 {
		words = append(words, vsockBuffer) // before the options, which may say otherwise
	}
	for _, o := range strings.Split(options, ",") {
		name, _, _ := strings.Cut(o, "=")
		switch {
		case o == "":
		case !slices.Contains(strings.Fields(allowed), name):
			return bridge.Address{}, fmt.Errorf("%s has no option %q here: it has %s", k.name, name, strings.Join(append(strings.Fields(allowed), "raw and path, behind the rule"), ", "))
		default:
			words = append(words, o)
		}
	}
	switch {
	case typ == unix.SOCK_SEQPACKET:
		words = append(words, "type=seqpacket")
	case typ == unix.SOCK_DGRAM && k.typ == 0 && !raw:
		words = append(words, "frame")
	case typ == unix.SOCK_DGRAM && raw && kind == k.listens && k.typ != 0:
		words = append(words, "eager") // so that the kernel may move the first one already
	case typ == unix.SOCK_DGRAM && k.typ != 0 && kind == k.dials:
		words = append(words, "type=dgram")
	}
	return bridge.Parse(strings.Join(words, ","))
}

// ReadFile reads rules from a YAML file: a list under the key rules.
func ReadFile(path string) ([]Rule, error) {
	b, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	var f struct {
		Rules []string `yaml:"rules"`
	}
	if err := yaml.UnmarshalWithOptions(b, &f, yaml.Strict()); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	var list []Rule
	for _, s := range f.Rules {
		r, err := Parse(s)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", path, err)
		}
		list = append(list, r)
	}
	return list, nil
}
