package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"testing"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
)

func TestPersonality(t *testing.T) {
	for _, tt := range []struct{ in, out []string }{
		{[]string{"/usr/bin/guestwire", "check"}, []string{"/usr/bin/guestwire", "check"}},
		{[]string{"/usr/libexec/guestwire-net", "--socket-path=/s"}, []string{"guestwire", "net", "--socket-path=/s"}},
		{[]string{"guestwire-vsock", "--fd=3"}, []string{"guestwire", "vsock", "--fd=3"}},
		{[]string{"/usr/bin/guestwire-worker"}, []string{"/usr/bin/guestwire-worker"}},
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
		{"nett", []string{"nett", "did you mean net?", "--help"}},
		{"wizard", []string{"wizard", "net, vsock", "doc", "--help"}},
		{"net --mtuu 9000", []string{"--mtuu", "did you mean --mtu?", "guestwire net --help"}},
		{"net --nothing-like-it", []string{"no option --nothing-like-it (see guestwire net --help)"}},
		{"net -t2222:22", []string{"-t2222:22", "if you mean -t, put a blank"}},
		{"net --fd 987", []string{`--fd "987"`, "UNIX socket"}},
		{"vsock -s /tmp/a --guest-cid 3 --uds-path /tmp/a", []string{"--uds-path", "has this socket already"}},
		{"net -m big", []string{`-m "big"`, "whole number"}},
		{"net --fd x", []string{`--fd "x"`, "whole number"}},
		{"net --no-dhcp=x", []string{`--no-dhcp "x"`, "switch"}},
		{"net --mtu", []string{"--mtu", "value is missing"}},
		{"agent setup --wait 5", []string{`--wait "5"`, "5s", "guestwire agent setup --help"}},
		{"--verison", []string{"did you mean --version?", "(see guestwire --help)"}},
		{"check host", []string{"host"}},
		{"doc", []string{"man", "descriptor"}},
		{"doc man net", []string{"net"}},
		{"net", []string{"--socket-path", "--fd"}},
		{"net --socket-path /s extra", []string{"extra"}},
		{"net --socket-path /s --log-level loud", []string{"loud", "debug"}},
		{"net --socket-path /s -t 99999", []string{"99999", "65535"}},
		{"vsock", []string{"--socket-path", "--fd"}},
		{"vsock --socket /s --uds-path /u", []string{"--guest-cid", "3"}},
		{"vsock --socket /s --uds-path /u --guest-cid 2", []string{"--guest-cid", "reserved"}},
		{"vsock --socket /s --guest-cid 3", []string{"--uds-path", "--groups"}},
		{"vsock --socket /s --uds-path /u --guest-cid 3 extra", []string{"extra"}},
		{"vsock --vm guest-cid=3,socket=/a --vm guest-cid=3,socket=/b", []string{"--guest-cid", "guest cid3", "CID"}},
		{"vsock --vm guest-cid=3,socket-pth=/a", []string{"--vm", `did you mean "socket-path"`}},
		{"vsock --vm guest-cid=3,socket=/a --guest-cid 4", []string{"--guest-cid", "--vm"}},
		{"vsock --vm guest-cid=3,socket=/a --config /f", []string{"not both"}},
		{"vsock --config /no/such/file", []string{"/no/such/file"}},
		{"daemon", []string{"--config"}},
		{"daemon --config /no/such/file", []string{"/no/such/file"}},
		{"daemon guests.yaml", []string{"guests.yaml"}},
		{"doc descriptor blk", []string{"blk", "vsock"}},
		{"run", []string{"guestwire run", "--"}},
		{"run --no-vsock --guest-cid 3 -- qemu", []string{"--guest-cid", "--no-vsock"}},
		{"run --uds-path /u -- qemu -device vhost-vsock-pci,guest-cid=3", []string{"--uds-path", "of its own"}},
		{"run --guest-cid 2 -- qemu", []string{"--guest-cid", "reserved"}},
		{"run -- qemu-that-is-not-there", []string{"qemu-that-is-not-there", "install"}},
		{"ctl agent info", []string{"--uds-path", "guestwire ctl agent --uds-path PATH info"}},
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
	for _, device := range []string{"net", "vsock"} {
		out := run(t, device, "--print-capabilities", "--socket-path", "/nowhere/at/all")
		var c struct {
			Type     string   `json:"type"`
			Features []string `json:"features"`
		}
		if err := json.Unmarshal(out, &c); err != nil || c.Type != device || c.Features == nil {
			t.Errorf("%s: got %s (%v)", device, out, err)
		}
	}
}

// Every option has one name: as a flag of its command and as a key of a file.
func TestFlagsAreKeys(t *testing.T) {
	for _, tt := range []struct {
		command *cli.Command
		options any
		only    []string // flags that say nothing about a guest
	}{
		{netCommand(), &config.Options{}, []string{"print-capabilities", "log-level"}},
		{vsockCommand(), &config.VsockOptions{}, []string{"print-capabilities", "log-level", "vm", "config"}},
	} {
		var flags, keys []string
		for _, f := range tt.command.Flags {
			if name := f.Names()[0]; !slices.Contains(tt.only, name) {
				flags = append(flags, name)
			}
		}
		for _, f := range config.Fields(tt.options) {
			keys = append(keys, f.Key)
		}
		slices.Sort(flags)
		slices.Sort(keys)
		if !slices.Equal(flags, keys) {
			t.Errorf("%s: the flags are\n%v\nthe keys are\n%v", tt.command.Name, flags, keys)
		}
	}
}

// What is typed reaches the options, each kind of them.
func TestRead(t *testing.T) {
	o := config.Options{FD: -1}
	c := netCommand()
	c.Action = func(c *cli.Context) error { read(c, &o); return nil }
	app := &cli.App{Commands: []*cli.Command{c}, DisableSliceFlagSeparator: true}
	if err := app.Run(strings.Fields("guestwire net -s /s -t 80,~81 -t 90 --no-dhcp -m 9000 --pcap-size 7")); err != nil {
		t.Fatal(err)
	}
	if o.SocketPath != "/s" || !slices.Equal(o.TCPPorts, []string{"80,~81", "90"}) || !o.Off.DHCP || o.Off.DNS || o.MTU != 9000 || o.PcapSize != 7 || o.FD != -1 {
		t.Errorf("got %+v", o)
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
	if out := run(t, "doc", "descriptor", "vsock"); !strings.Contains(string(out), "/guestwire-vsock") || !strings.Contains(string(out), `"type": "vsock"`) {
		t.Errorf("doc descriptor vsock: %s", out)
	}
	if man := string(run(t, "doc", "man")); !strings.Contains(man, "guestwire agent redirect [options] [RULE...]") || !strings.Contains(man, "unix-listen:PATH") {
		t.Error("the man page lacks the descriptions of the commands")
	}
	if man := run(t, "doc", "man"); !strings.Contains(string(man), "uds-path") || strings.Contains(string(man), "worker, ") || strings.Contains(string(man), "## worker") {
		t.Error("the man page lacks the vsock options, or has the hidden command")
	}
}

// A flag's line says its names once, and a default only where there is one.
func TestFlagLine(t *testing.T) {
	for _, tt := range []struct {
		flag cli.Flag
		want string
	}{
		{&cli.StringSliceFlag{Name: "tcp-ports", Aliases: []string{"t"}, Usage: "forward `SPEC`"}, "--tcp-ports, -t SPEC ...\tforward SPEC"},
		{&cli.BoolFlag{Name: "check", Usage: "only check"}, "--check\tonly check"},
		{&cli.BoolFlag{Name: "config-net", Usage: "set it up", DefaultText: "in a new one"}, "--config-net\tset it up (default: in a new one)"},
		{&cli.StringFlag{Name: "log-level", Value: "info", Usage: "`LEVEL`"}, "--log-level LEVEL\tLEVEL (default: info)"},
		{&cli.IntFlag{Name: "mtu", Value: 1500, Usage: "in `BYTES`"}, "--mtu BYTES\tin BYTES (default: 1500)"},
	} {
		if got := flagLine(tt.flag); got != tt.want {
			t.Errorf("got %q, want %q", got, tt.want)
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
