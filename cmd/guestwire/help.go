package main

import (
	"fmt"
	"strings"

	"github.com/urfave/cli/v2"

	"guestwire/cmd/config"
)

// flagLine is the line of a flag in the help. The library's own names a flag that
// can be given several times twice, and says of every switch that it is off.
func flagLine(f cli.Flag) string {
	d, ok := f.(cli.DocGenerationFlag)
	if !ok {
		return ""
	}
	usage := d.GetUsage()
	before, rest, _ := strings.Cut(usage, "`")
	value, after, quoted := strings.Cut(rest, "`")
	names := flagNames(f)
	if quoted {
		usage, names = before+value+after, names+" "+value
	}
	if s, ok := f.(cli.DocGenerationSliceFlag); ok && s.IsSliceFlag() {
		names += " ..."
	}
	text := d.GetDefaultText()
	if b, ok := f.(*cli.BoolFlag); ok {
		text = b.DefaultText
	}
	if text != "" {
		usage += " (default: " + strings.Trim(text, `"`) + ")"
	}
	return names + "\t" + usage
}

// flagNames writes a flag as it is typed: --tcp-ports, -t
func flagNames(f cli.Flag) string {
	var names []string
	for _, n := range f.Names() {
		names = append(names, dashed(n))
	}
	return strings.Join(names, ", ")
}

func dashed(name string) string {
	if len(name) == 1 {
		return "-" + name
	}
	return "--" + name
}

// usageError says which flag was wrong and where to read more, in one line
// instead of the whole help.
func usageError(c *cli.Context, err error, _ bool) error {
	help, flags := "guestwire", c.App.Flags
	if c.Command != nil && c.Command.HelpName != "" {
		help, flags = c.Command.HelpName, c.Command.Flags
	}
	return cli.Exit(fmt.Sprintf("%s (see %s --help)", wrongFlag(err, flags), help), 2)
}

// wrongFlag tells what package flag has found wrong, and what would be right.
func wrongFlag(err error, flags []cli.Flag) string {
	if name, found := strings.CutPrefix(err.Error(), "flag provided but not defined: -"); found {
		return noFlag(name, flags)
	}
	if name, found := strings.CutPrefix(err.Error(), "flag needs an argument: -"); found {
		return dashed(name) + ": its value is missing"
	}
	// invalid value "x" for flag -mtu: parse error, or the like for a switch
	_, rest, _ := strings.Cut(err.Error(), `"`)
	value, rest, _ := strings.Cut(rest, `" for `)
	name, _, found := strings.Cut(strings.TrimLeft(strings.TrimPrefix(rest, "flag "), "-"), ":")
	f := findFlag(name, flags)
	if !found || f == nil {
		return err.Error()
	}
	want := "write a whole number"
	switch f.(type) {
	case *cli.BoolFlag:
		want = "is a switch: write it without a value, or with true or false"
	case *cli.DurationFlag:
		want = "write a time with its unit, like 500ms, 5s or 2m"
	}
	return fmt.Sprintf("%s \"%s\": %s", dashed(name), value, want)
}

// noFlag says which flag was meant: one with a similar name, or a short one with
// its value stuck to it.
func noFlag(name string, flags []cli.Flag) string {
	var long []string
	for _, f := range flags {
		for _, n := range f.Names() {
			if len(n) > 1 {
				long = append(long, n)
			}
		}
	}
	if near := config.Nearest(name, long); near != "" {
		return fmt.Sprintf("there is no option %s: did you mean %s?", dashed(name), dashed(near))
	}
	if short := name[:min(1, len(name))]; short != name && findFlag(short, flags) != nil {
		return fmt.Sprintf("there is no option -%s: if you mean -%s, put a blank before its value", name, short)
	}
	return "there is no option " + dashed(name)
}

func findFlag(name string, flags []cli.Flag) cli.Flag {
	for _, f := range flags {
		for _, n := range f.Names() {
			if n == name {
				return f
			}
		}
	}
	return nil
}
