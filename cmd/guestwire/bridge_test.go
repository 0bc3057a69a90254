package main

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"
)

// Wrong bridges end with code 2 and say what would be right.
func TestBridgeUsageErrors(t *testing.T) {
	for _, tt := range []struct{ line, says string }{
		{"bridge", "unix-listen:/run/a.sock vsock-connect:3:1024"},
		{"bridge stdio", "got 1"},
		{"bridge stdio unix:/a", "unix-connect:PATH"},
		{"bridge unix-listen:/a,forks stdio", "once"},
		{"bridge --max-connections 0 stdio exec:cat", "1 or more"},
		{"bridge --max-message 0 stdio exec:cat", "67108864"},
	} {
		err := newApp().Run(append([]string{"guestwire"}, strings.Fields(tt.line)...))
		var exit cli.ExitCoder
		if !errors.As(err, &exit) || exit.ExitCode() != 2 || !strings.Contains(err.Error(), tt.says) {
			t.Errorf("%s: %v, want code 2 and %q", tt.line, err, tt.says)
		}
	}
}

// Standard input and output may be pipes or files; the last byte arrives before
// the command ends.
func TestBridgeStdio(t *testing.T) {
	question := strings.Repeat("words ", 100000)
	file := t.TempDir() + "/in"
	if err := os.WriteFile(file, []byte(question), 0o600); err != nil {
		t.Fatal(err)
	}
	for name, script := range map[string]string{
		"files": `"$0" bridge stdio 'exec:tr a-z A-Z' <"$1" >"$1.out"; cat "$1.out"`,
		"pipes": `cat "$1" | "$0" bridge stdio 'exec:tr a-z A-Z' | cat`,
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command("/bin/sh", "-c", script, "/proc/"+strconv.Itoa(os.Getpid())+"/exe", file)
			cmd.Env = append(os.Environ(), mainEnv+"=1")
			cmd.Stderr = os.Stderr
			out, err := cmd.Output()
			if err != nil || string(out) != strings.ToUpper(question) {
				t.Errorf("%d bytes, %v, want %d", len(out), err, len(question))
			}
		})
	}
}
