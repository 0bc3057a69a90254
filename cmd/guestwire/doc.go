package main

import (
	"fmt"

	"github.com/urfave/cli/v2"
)

// docCommand prints the man page and the completion scripts, so that packages
// need nothing beside the binary.
func docCommand() *cli.Command {
	return &cli.Command{
		Name:      "doc",
		Usage:     "print the man page or a shell completion script",
		ArgsUsage: "man | bash | zsh | fish",
		Description: "   guestwire doc man  > guestwire.1\n" +
			"   source <(guestwire doc bash)",
		OnUsageError: usageError,
		Action: func(c *cli.Context) error {
			out, err := document(c.App, c.Args().First())
			if err != nil {
				return cli.Exit(err.Error(), 2)
			}
			fmt.Print(out)
			return nil
		},
	}
}

func document(app *cli.App, kind string) (string, error) {
	switch kind {
	case "man":
		return app.ToMan()
	case "bash":
		return bashCompletion, nil
	case "zsh":
		return zshCompletion, nil
	case "fish":
		return app.ToFishCompletion()
	}
	return "", fmt.Errorf("doc %q: choose man, bash, zsh or fish", kind)
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
