package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"github.com/urfave/cli/v2"
)

// docCommand prints the man page, the completion scripts and the vhost-user
// descriptor, so that packages need nothing beside the binary.
func docCommand() *cli.Command {
	return &cli.Command{
		Name:      "doc",
		Usage:     "print the man page, a shell completion script, or the vhost-user descriptor",
		ArgsUsage: "man | bash | zsh | fish | descriptor [net | vsock]",
		Description: "   guestwire doc man  > guestwire.1\n" +
			"   source <(guestwire doc bash)\n" +
			"   guestwire doc descriptor net > /usr/share/qemu/vhost-user/50-guestwire-net.json\n" +
			"   guestwire doc descriptor vsock > /usr/share/qemu/vhost-user/50-guestwire-vsock.json\n\n" +
			"A descriptor tells management software (QEMU's docs/interop/vhost-user.json) of a backend named\n" +
			"guestwire-net or guestwire-vsock: make that a link to guestwire, and the binary is `guestwire net` or\n" +
			"`guestwire vsock` under this name.",
		OnUsageError: usageError,
		BashComplete: func(c *cli.Context) {
			if c.Args().First() == "descriptor" {
				fmt.Fprintln(c.App.Writer, "net\nvsock")
			} else if c.NArg() == 0 {
				fmt.Fprintln(c.App.Writer, "man\nbash\nzsh\nfish\ndescriptor")
			}
		},
		Action: func(c *cli.Context) error {
			most := 1
			if c.Args().First() == "descriptor" {
				most = 2
			}
			if c.NArg() > most {
				return cli.Exit(fmt.Sprintf("doc %s: %q is too much (see guestwire doc --help)", c.Args().First(), c.Args().Get(most)), 2)
			}
			out, err := document(c.App, c.Args().First(), c.Args().Get(1))
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			fmt.Fprint(c.App.Writer, out)
			return nil
		},
	}
}

func document(app *cli.App, kind, device string) (string, error) {
	switch kind {
	case "man":
		describe(app.Name, app.Commands)
		return app.ToManWithSection(1)
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return fishCompletion, nil
	case "descriptor":
		return descriptor(device)
	}
	if kind == "" {
		return "", fmt.Errorf("doc: say which: man, bash, zsh, fish or descriptor")
	}
	return "", fmt.Errorf("doc %q: choose man, bash, zsh, fish or descriptor", kind)
}

// describe brings the descriptions of all commands into the man page: the library
// prints usage texts there, but not these.
func describe(parent string, commands []*cli.Command) {
	for _, c := range commands {
		name, options := parent+" "+c.Name, " [options]"
		if len(c.Subcommands) > 0 {
			options = " COMMAND"
		}
		c.UsageText = strings.TrimSpace(name+options+" "+c.ArgsUsage) + "\n\n" + c.Description
		describe(name, c.Subcommands)
	}
}

// descriptor is the JSON file by which management software finds the backend of
// a device, net if none is said. It names guestwire-net or guestwire-vsock beside
// this binary: a descriptor has no arguments.
func descriptor(device string) (string, error) {
	what := map[string]string{
		"net":   "guestwire: user-mode network for virtual machines",
		"vsock": "guestwire: vsock for virtual machines, bridged to UNIX sockets",
	}
	if device == "" {
		device = "net"
	}
	if what[device] == "" {
		return "", fmt.Errorf("doc descriptor %q: choose net or vsock", device)
	}
	self, err := os.Executable()
	if err != nil {
		return "", fmt.Errorf("where this binary lies cannot be found out: %w", err)
	}
	b, err := json.MarshalIndent(map[string]any{
		"description": what[device],
		"type":        device,
		"binary":      filepath.Join(filepath.Dir(self), "guestwire-"+device),
	}, "", "  ")
	return string(b) + "\n", err
}

// The binary lists what fits by itself (--generate-bash-completion); the shells
// only have to ask it.
const bashCompletion = `_guestwire() {
  local cur="${COMP_WORDS[COMP_CWORD]}"
  local words=("${COMP_WORDS[@]:0:COMP_CWORD}")
  case $cur in
    --) words+=(-) ;; # by itself it would end the options
    -*) words+=("$cur") ;;
    *) [[ ${words[-1]} == -* ]] && return ;; # an option's value
  esac
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null | cut -d: -f1)" -- "$cur"))
}
complete -o bashdefault -o default -F _guestwire guestwire
`

const zshCompletion = `#compdef guestwire
_guestwire() {
  local -a opts
  local cur=${words[CURRENT]}
  [[ $cur == -- ]] && cur=- # by itself it would end the options
  opts=(${(f)"$(${words[@]:0:#words[@]-1} $cur --generate-bash-completion 2>/dev/null)"})
  _describe 'guestwire' opts || _files
}
compdef _guestwire guestwire
`

const fishCompletion = `function __guestwire_complete
  set -l words (commandline -opc)
  set -l cur (commandline -ct)
  test "$cur" = --; and set cur - # by itself it would end the options
  string match -q -- '-*' "$cur"; and set -a words $cur
  $words --generate-bash-completion 2>/dev/null
end
complete -c guestwire -n 'count (__guestwire_complete) >/dev/null' -f -a '(__guestwire_complete)'
`
