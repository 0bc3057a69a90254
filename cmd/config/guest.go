package config

import (
	"fmt"
	"slices"
)

// GuestOptions is one guest as written: what of it is nil, it does not have.
type GuestOptions struct {
	Name  string
	Net   *Options
	Vsock *VsockOptions
}

// Guest is one guest's complete, validated configuration.
type Guest struct {
	Name  string // "" on a command line that serves only one
	Net   *Net   // nil: no network card
	Vsock *Vsock // nil: no vsock device
}

// Resolve validates both devices.
func (o *GuestOptions) Resolve(host func() (HostNet, error)) (g Guest, err error) {
	g.Name = o.Name
	if o.Net != nil {
		if g.Net, err = Resolve(o.Net, host); err != nil {
			return g, err
		}
	}
	if o.Vsock != nil {
		g.Vsock, err = ResolveVsock(o.Vsock)
	}
	return g, err
}

// Processes divides guests, by their indices, among worker processes: guests of
// one sibling group must share one, every other guest has one of its own. The
// order is that of the first guest of each.
func Processes(guests []Guest) [][]int {
	first := make([]int, len(guests)) // of each guest's process, the first guest
	for i := range guests {
		first[i] = i
		for j := range i {
			if first[j] != first[i] && siblings(&guests[i], &guests[j]) {
				merge(first[:i+1], first[i], first[j])
			}
		}
	}
	place := map[int]int{} // where in list a process stands
	var list [][]int
	for i, f := range first {
		if f == i {
			place[i] = len(list)
			list = append(list, nil)
		}
		list[place[f]] = append(list[place[f]], i)
	}
	return list
}

// merge gives two processes one first guest: the earlier of both.
func merge(first []int, a, b int) {
	for i, f := range first {
		if f == a || f == b {
			first[i] = min(a, b)
		}
	}
}

func siblings(a, b *Guest) bool {
	return a.Vsock != nil && b.Vsock != nil && slices.ContainsFunc(a.Vsock.Groups, func(g string) bool {
		return slices.Contains(b.Vsock.Groups, g)
	})
}

const maxName = 64

// checkName says what is wrong with a guest's name: it stands in log lines and
// names counters.
func checkName(name string) error {
	if name == "" || len(name) > maxName {
		return fmt.Errorf("a guest's name has 1 to %d characters", maxName)
	}
	for _, c := range []byte(name) {
		if !(c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '-' || c == '_' || c == '.') {
			return fmt.Errorf("a guest's name is made of letters, digits, '-', '_' and '.'")
		}
	}
	return nil
}
