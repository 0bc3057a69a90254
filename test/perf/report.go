package main

import (
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"
	"strings"
	"time"

	"guestwire/test/harness/backend"
)

// results holds every value: row, daemon, round.
type results map[string]*row

type row struct {
	order  int
	unit   string
	values map[string]map[int]float64 // daemon -> round
}

func (r results) add(name, unit, kind string, round int, v float64) {
	x := r[name]
	if x == nil {
		x = &row{order: len(r), unit: unit, values: map[string]map[int]float64{}}
		r[name] = x
	}
	if x.values[kind] == nil {
		x.values[kind] = map[int]float64{}
	}
	x.values[kind][round] = v
}

func median(v []float64) float64 {
	if len(v) == 0 {
		return 0
	}
	v = slices.Sorted(slices.Values(v))
	if n := len(v); n%2 == 0 {
		return (v[n/2-1] + v[n/2]) / 2
	}
	return v[len(v)/2]
}

func (x *row) all(kind string) (v []float64) {
	for _, f := range x.values[kind] {
		v = append(v, f)
	}
	return v
}

// ratios are guestwire's value over the peer's in row other (usually the same row), round by round.
func (x *row) ratios(other *row, peer string) (v []float64) {
	for round, ours := range x.values[backend.Guestwire] {
		if theirs := other.values[peer][round]; theirs != 0 {
			v = append(v, ours/theirs)
		}
	}
	return v
}

func (b *bench) report(w io.Writer) {
	fmt.Fprintf(w, "Measured %s with `go run ./test/perf %s`: %d rounds, %d s each, the daemons alternating; medians.\n\n", time.Now().UTC().Format("2006-01-02"),
		strings.Join(os.Args[1:], " "), b.rounds, b.seconds)
	fmt.Fprintf(w, "%s\n", b.versions())
	names := make([]string, 0, len(b.results))
	for n := range b.results {
		names = append(names, n)
	}
	slices.SortFunc(names, func(a, c string) int { return b.results[a].order - b.results[c].order })
	b.table(w, backend.Passt, names, func(n string) bool { return !isVSock(n) && !isNetns(n) && !strings.HasPrefix(n, redirectRow) })
	b.acrossRows(w)
	b.transports(w)
	b.table(w, backend.VhostDeviceVSock, names, isVSock)
	b.bestSizes(w)
	b.table(w, pasta, names, isNetns)
	b.redirects(w, names)
}

// isVSock tells whether a row is one of the vsock part.
func isVSock(name string) bool { return strings.HasPrefix(name, vsockRow) }

// isNetns tells whether a row is one of the netns part.
func isNetns(name string) bool { return strings.HasPrefix(name, netnsRow) }

// table prints the rows that are compared with one peer.
func (b *bench) table(w io.Writer, peer string, names []string, in func(string) bool) {
	names = slices.DeleteFunc(slices.Clone(names), func(n string) bool { return !in(n) })
	if len(names) == 0 {
		return
	}
	fmt.Fprintf(w, "\n| what | unit | guestwire | %s | guestwire / %s (median of the rounds' ratios, lowest - highest) |\n|---|---|---|---|---|\n", peer, peer)
	for _, n := range names {
		x := b.results[n]
		line(w, n, x.unit, x.all(backend.Guestwire), x.all(peer), x.ratios(x, peer))
	}
}

func line(w io.Writer, name, unit string, ours, theirs, ratios []float64) {
	cell := "-"
	if len(ratios) > 0 {
		cell = fmt.Sprintf("%.2f (%.2f - %.2f)", median(ratios), slices.Min(ratios), slices.Max(ratios))
	}
	value := func(v []float64) string {
		if len(v) == 0 {
			return "-"
		}
		return number(median(v))
	}
	fmt.Fprintf(w, "| %s | %s | %s | %s | %s |\n", name, unit, value(ours), value(theirs), cell)
}

// bestSizes compares guestwire's large writes with the best that the peer has at any size.
func (b *bench) bestSizes(w io.Writer) {
	for _, name := range []string{"UML", "QEMU/" + strings.ToUpper(b.accel)} {
		best := &row{values: map[string]map[int]float64{backend.VhostDeviceVSock: {}}}
		for _, z := range vsockSizes {
			if x := b.results[vsockRow+name+", guest to host, writes of "+z.name]; x != nil {
				for round, v := range x.values[backend.VhostDeviceVSock] {
					best.values[backend.VhostDeviceVSock][round] = max(v, best.values[backend.VhostDeviceVSock][round])
				}
			}
		}
		for _, size := range []string{"64 KiB", "1 MiB"} {
			if x := b.results[vsockRow+name+", guest to host, writes of "+size]; x != nil {
				line(w, vsockRow+name+", guest to host: writes of "+size+" against the peer's best size", x.unit, x.all(backend.Guestwire), best.all(backend.VhostDeviceVSock),
					x.ratios(best, backend.VhostDeviceVSock))
			}
		}
	}
}

// acrossRows compares guestwire at the usual MTU with passt at its largest.
func (b *bench) acrossRows(w io.Writer) {
	for _, way := range []string{"guest to host", "host to guest"} {
		small, big := b.results["UML, MTU 1500, TCP "+way], b.results["UML, MTU 65520, TCP "+way]
		if small != nil && big != nil {
			line(w, "guestwire at MTU 1500 against passt at MTU 65520, TCP "+way, small.unit, small.all(backend.Guestwire), big.all(backend.Passt), small.ratios(big, backend.Passt))
		}
	}
}

// transports compares each daemon's vhost-user with its own stream.
func (b *bench) transports(w io.Writer) {
	prefix := "QEMU/" + strings.ToUpper(b.accel) + ", "
	for _, what := range []string{"TCP guest to host", "TCP host to guest", "UDP 1,400 B guest to host, unlimited", "UDP 1,400 B host to guest, 100 Mbit/s offered"} {
		vu, st := b.results[prefix+"vhost-user, "+what], b.results[prefix+"stream, "+what]
		if vu == nil || st == nil {
			continue
		}
		cells := []string{}
		for _, kind := range []string{backend.Guestwire, backend.Passt} {
			var v []float64
			for round, fast := range vu.values[kind] {
				if slow := st.values[kind][round]; slow != 0 {
					v = append(v, fast/slow)
				}
			}
			cells = append(cells, number(median(v)))
		}
		fmt.Fprintf(w, "| %sown vhost-user / own stream, %s | x | %s | %s | |\n", prefix, what, cells[0], cells[1])
	}
}

func number(v float64) string {
	switch {
	case v >= 1000:
		return fmt.Sprintf("%.0f", v)
	case v >= 10:
		return fmt.Sprintf("%.1f", v)
	default:
		return fmt.Sprintf("%.2f", v)
	}
}

func (b *bench) versions() string {
	first := func(argv ...string) string {
		out, err := exec.Command(argv[0], argv[1:]...).CombinedOutput()
		if err != nil && len(out) == 0 {
			return "?"
		}
		for line := range strings.SplitSeq(strings.TrimSpace(string(out)), "\n") {
			if !strings.HasPrefix(line, "Can't run AVX2") { // passt under a loader of its own does not see that it is that build already
				return line
			}
		}
		return "?"
	}
	commit := first("git", "-C", b.lab.Root, "rev-parse", "--short=12", "HEAD")
	passt := b.lab.Program("passt", "--version")
	host, _ := os.ReadFile("/proc/sys/kernel/osrelease")
	return fmt.Sprintf("guestwire %s, %s, %s; host Linux %s, %s CPUs; QEMU guest Linux %s under %s (%s), %s.", commit, first(passt...), first("go", "version"),
		strings.TrimSpace(string(host)), first("nproc"), b.lab.KernelVersion(), b.accel, first("qemu-system-x86_64", "--version"), umlVersion(b))
}

func umlVersion(b *bench) string {
	out, err := exec.Command(b.lab.UML(), "--version").CombinedOutput()
	if err != nil {
		return "UML"
	}
	return "UML guest Linux " + strings.TrimSpace(string(out))
}
