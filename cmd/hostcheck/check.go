package hostcheck

import (
	"fmt"
	"io"
	"text/tabwriter"

	"golang.org/x/sys/unix"
)

// Level says how much a missing item hurts.
type Level uint8

const (
	OK      Level = iota
	Missing       // something optional is not there
	Broken        // guestwire cannot work without it
)

func (l Level) String() string { return [...]string{"ok", "missing", "broken"}[l] }

// Item is one row: what was looked at, what was found, what to do.
type Item struct {
	Name  string
	Level Level
	Found string // what is there, or why it is not
	Gives string // what guestwire does with it
	Hint  string // how to get it, empty when ok
}

// All runs every probe.
func All() []Item {
	return []Item{
		kernel(), sharedMemory(), peekOffset(unix.AF_INET), peekOffset(unix.AF_INET6), udpOffload(), pingSockets(),
		qemuBinary(), kvm(), tun(), vhostNet(), userNamespaces(), descriptors(),
	}
}

// Print writes items as a table, followed by what to do about each that is not
// ok. It reports whether guestwire can work here.
func Print(w io.Writer, items []Item) bool {
	usable := true
	t := tabwriter.NewWriter(w, 0, 8, 2, ' ', 0)
	fmt.Fprintln(t, "WHAT\tSTATE\tFOUND\tUSED FOR")
	for _, it := range items {
		fmt.Fprintf(t, "%s\t%s\t%s\t%s\n", it.Name, it.Level, it.Found, it.Gives)
		usable = usable && it.Level != Broken
	}
	_ = t.Flush()
	for _, it := range items {
		if it.Level != OK && it.Hint != "" {
			fmt.Fprintf(w, "\n%s: %s\n", it.Name, it.Hint)
		}
	}
	return usable
}
