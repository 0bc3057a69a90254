package main

import (
	"slices"
	"testing"
)

// What is a namespace that exists, and what a command.
func TestNetnsTarget(t *testing.T) {
	t.Setenv("SHELL", "/bin/my-shell")
	for _, tt := range []struct {
		argv, args []string
		target     string
		command    []string
	}{
		{[]string{"guestwire", "netns", "4711"}, []string{"4711"}, "/proc/4711/ns/net", nil},
		{[]string{"guestwire", "netns", "-t", "80", "blue"}, []string{"blue"}, "/run/netns/blue", nil},
		{[]string{"guestwire", "netns", "/tmp/x"}, []string{"/tmp/x"}, "/tmp/x", nil},
		{[]string{"guestwire", "netns", "--", "true"}, []string{"true"}, "", []string{"true"}},
		{[]string{"guestwire", "netns", "--", "4711"}, []string{"4711"}, "", []string{"4711"}},
		{[]string{"guestwire", "netns", "sleep", "5"}, []string{"sleep", "5"}, "", []string{"sleep", "5"}},
		{[]string{"guestwire", "netns"}, nil, "", []string{"/bin/my-shell"}},
		{[]string{"guestwire", "netns", "--"}, nil, "", []string{"/bin/my-shell"}},
	} {
		target, command, err := netnsTarget(tt.args, tt.argv)
		if err != nil || target.Path != tt.target || !slices.Equal(command, tt.command) {
			t.Errorf("%q: %+v, %q, %v", tt.argv, target, command, err)
		}
	}
}
