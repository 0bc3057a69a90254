package vsockbridge

import (
	"fmt"
	"slices"
)

// Group is a set of guests that may connect to each other, all on one loop. A
// guest may be in several.
type Group struct{ members []*Device }

// NewGroup makes an empty group.
func NewGroup() *Group { return &Group{} }

// join adds d to its groups, or to none of them.
func (d *Device) join() error {
	for _, g := range d.cfg.Groups {
		if g.find(d.cfg.CID) != nil {
			return fmt.Errorf("vsockbridge: two guests of a sibling group have CID %d: each needs its own", d.cfg.CID)
		}
	}
	for _, g := range d.cfg.Groups {
		g.members = append(g.members, d)
	}
	return nil
}

// part takes d out of its groups.
func (d *Device) part() {
	for _, g := range d.cfg.Groups {
		g.members = slices.DeleteFunc(g.members, func(m *Device) bool { return m == d })
	}
}

func (g *Group) find(cid uint64) *Device {
	for _, m := range g.members {
		if m.cfg.CID == cid {
			return m
		}
	}
	return nil
}

// sibling returns the device of a guest that shares a group with d, nil if there
// is none.
func (d *Device) sibling(cid uint64) *Device {
	for _, g := range d.cfg.Groups {
		if m := g.find(cid); m != nil && m != d {
			return m
		}
	}
	return nil
}
