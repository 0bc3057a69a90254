package config

import "fmt"

// Error is a wrong option: where it stands, what it said, and the way out.
type Error struct {
	Option string // as typed, for example "--address"
	Value  string // as typed; empty if the option was missing
	Want   string // what would be right
}

func (e *Error) Error() string {
	if e.Value == "" {
		return fmt.Sprintf("%s: %s", e.Option, e.Want)
	}
	return fmt.Sprintf("%s %q: %s", e.Option, e.Value, e.Want)
}

func wrong(option, value, format string, args ...any) error {
	return &Error{Option: option, Value: value, Want: fmt.Sprintf(format, args...)}
}
