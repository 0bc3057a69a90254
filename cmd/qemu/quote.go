package qemu

import "strings"

// Quote writes a command line as a shell would read it back.
func Quote(command []string) string {
	out := make([]string, len(command))
	for i, s := range command {
		if s == "" || strings.ContainsAny(s, " \t\n'\"\\$&|;<>()*?[]{}#~`!") {
			s = "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
		}
		out[i] = s
	}
	return strings.Join(out, " ")
}
