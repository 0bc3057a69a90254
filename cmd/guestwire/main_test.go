package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

func TestPersonality(t *testing.T) {
	for _, tt := range []struct{ in, out []string }{
		{[]string{"/usr/bin/guestwire", "check"}, []string{"/usr/bin/guestwire", "check"}},
		{[]string{"/usr/libexec/guestwire-net", "--socket-path=/s"}, []string{"guestwire", "net", "--socket-path=/s"}},
		{nil, []string{"guestwire"}},
	} {
		if got := personality(tt.in); !slices.Equal(got, tt.out) {
			t.Errorf("personality(%q) = %q, want %q", tt.in, got, tt.out)
		}
	}
}

// Wrong command lines end with code 2 and one line that tells the way out.
func TestUsageErrors(t *testing.T) {
	for _, tt := range []struct {
		line string
		says []string
	}{
		{"nett", []string{"nett", "--help"}},
		{"net --mtuu 9000", []string{"mtuu", "guestwire net --help"}},
		{"net", []string{"--socket-path", "--fd"}},
		{"net --socket-path /s extra", []string{"extra"}},
		{"net --socket-path /s --log-level loud", []string{"loud", "debug"}},
		{"net --socket-path /s -t 99999", []string{"99999", "65535"}},
		{"run", []string{"guestwire run", "--"}},
		{"run -- qemu-that-is-not-there", []string{"qemu-that-is-not-there", "install"}},
		{"doc html", []string{"html", "man"}},
	} {
		t.Run(tt.line, func(t *testing.T) {
			err := newApp().Run(append([]string{"guestwire"}, strings.Fields(tt.line)...))
			var exit cli.ExitCoder
			if !errors.As(err, &exit) || exit.ExitCode() != 2 {
				t.Fatalf("got %v, want exit code 2", err)
			}
			for _, s := range tt.says {
				if !strings.Contains(err.Error(), s) {
					t.Errorf("%q does not say %q", err, s)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("more than one line: %q", err)
			}
		})
	}
}

// The vhost-user backend conventions ask for JSON on standard output, whatever
// other options there are.
func TestPrintCapabilities(t *testing.T) {
	out := run(t, "net", "--print-capabilities", "--socket-path", "/nowhere/at/all")
	var c struct {
		Type     string   `json:"type"`
		Features []string `json:"features"`
	}
	if err := json.Unmarshal(out, &c); err != nil || c.Type != "net" || c.Features == nil {
		t.Errorf("got %s (%v)", out, err)
	}
}

func TestDocuments(t *testing.T) {
	for kind, says := range map[string]string{
		"man": ".TH guestwire 1", "bash": "complete ", "zsh": "#compdef guestwire", "fish": "complete -c guestwire", "descriptor": `"type": "net"`,
	} {
		if out := run(t, "doc", kind); !strings.Contains(string(out), says) {
			t.Errorf("doc %s does not contain %q", kind, says)
		}
	}
}

func run(t *testing.T, args ...string) []byte {
	t.Helper()
	app, out := newApp(), &bytes.Buffer{}
	app.Writer = out
	if err := app.Run(append([]string{"guestwire"}, args...)); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}
