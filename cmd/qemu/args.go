package qemu

import "strings"

// args is a view of a QEMU command line: options with one or two dashes, most
// of them followed by one comma-separated value.
type args []string

// values lists the values of an option in order: `-object A -object B`.
func (a args) values(names ...string) []string {
	var out []string
	for i := 0; i+1 < len(a); i++ {
		for _, n := range names {
			if trimDash(a[i]) == n {
				out = append(out, a[i+1])
			}
		}
	}
	return out
}

// has reports whether an option without a value is present.
func (a args) has(name string) bool {
	for _, s := range a {
		if strings.HasPrefix(s, "-") && trimDash(s) == name {
			return true
		}
	}
	return false
}

func trimDash(s string) string {
	if !strings.HasPrefix(s, "-") {
		return ""
	}
	return strings.TrimPrefix(strings.TrimPrefix(s, "-"), "-")
}

// properties splits "driver,key=value,key=value"; the first item without '='
// has the key "". QEMU writes a comma inside a value as ",,".
func properties(value string) map[string]string {
	p := map[string]string{}
	const comma = "\x00"
	for i, item := range strings.Split(strings.ReplaceAll(value, ",,", comma), ",") {
		item = strings.ReplaceAll(item, comma, ",")
		k, v, ok := strings.Cut(item, "=")
		switch {
		case ok:
			p[k] = v
		case i == 0:
			p[""] = item
		default:
			p[item] = "on"
		}
	}
	return p
}

// escape writes a path as a QEMU property value.
func escape(path string) string { return strings.ReplaceAll(path, ",", ",,") }
