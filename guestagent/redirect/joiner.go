package redirect

import (
	"golang.org/x/sys/unix"

	"guestwire/guestagent/redirect/sockmap"
	"guestwire/vring/eventloop"
	"guestwire/vsockbridge/relay"
)

// joiner chooses the path of each flow of one rule, on that rule's loop. It is a
// bridge.Joiner.
type joiner struct {
	rule  *Rule
	why   error          // why there is no table
	table *sockmap.Table // nil: the kernel cannot
	flows [paths]uint64
	fell  uint64 // flows that got less than was wanted
	note  func(string)
}

func (r *Redirect) newJoiner(rule *Rule, loop *eventloop.Loop) *joiner {
	j := &joiner{rule: rule, why: r.why, note: r.once}
	if r.kernel != nil {
		j.table = r.kernel.NewTable(loop, r.c.Log)
	}
	return j
}

// Join implements bridge.Joiner.
func (j *joiner) Join(a, b relay.End, ended func(relay.Result)) bool {
	local, vsock, swapped := a, b, false
	if family(a.In) == unix.AF_VSOCK {
		local, vsock, swapped = b, a, true
	}
	s := shape{local.Kind, vsock.Kind, family(local.In), local.Out >= 0, j.rule.Path, j.why}
	p, why := choose(s)
	if p == Sockmap {
		err := j.table.Start(local, vsock, func(r relay.Result) {
			if swapped {
				r.Bytes[0], r.Bytes[1] = r.Bytes[1], r.Bytes[0]
			}
			ended(r)
		})
		if err == nil {
			j.flows[Sockmap]++
			return true
		}
		s.sockmap = err
		p, why = choose(s)
	}
	if why != "" {
		j.fell++
		j.note(why)
	}
	j.flows[p]++
	return false
}

// Close implements bridge.Joiner.
func (j *joiner) Close() {
	if j.table != nil {
		j.table.Close()
	}
}

// Each implements bridge.Joiner.
func (j *joiner) Each(f func(name string, value uint64)) {
	for p := Sockmap; p < paths; p++ {
		f("flows_"+p.String(), j.flows[p])
	}
	f("flows_fell_back", j.fell)
	if j.table != nil {
		s := j.table.Stats()
		s.Each(f)
	}
}

// family returns a socket's address family.
func family(fd int) int {
	d, _ := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	return d
}
