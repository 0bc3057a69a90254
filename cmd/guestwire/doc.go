package main

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"

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
		Action: func(c *cli.Context) error {
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
		return app.ToManWithSection(1)
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return app.ToFishCompletion()
	case "descriptor":
		return descriptor(device)
	}
	return "", fmt.Errorf("doc %q: choose man, bash, zsh, fish or descriptor", kind)
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
  [[ $cur == -* ]] && words+=("$cur")
  COMPREPLY=($(compgen -W "$("${words[@]}" --generate-bash-completion 2>/dev/null | cut -d: -f1)" -- "$cur"))
}
complete -o bashdefault -o default -F _guestwire guestwire
`

const zshCompletion = `#compdef guestwire
_guestwire() {
  local -a opts
  opts=("${(@f)$(${words[@]:0:#words[@]-1} ${words[CURRENT]} --generate-bash-completion 2>/dev/null)}")
  _describe 'guestwire' opts
}
compdef _guestwire guestwire
`
