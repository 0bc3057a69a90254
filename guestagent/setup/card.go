package setup

import (
	"errors"
	"fmt"
	"slices"
	"strings"
)

// card is a link that could be meant.
type card struct {
	name   string
	others []string // alternative names
	mac    string
	real   bool // has hardware, if only a hypervisor's
}

var errNoCard = errors.New("no network card")

// choose finds the link that a configuration means: by name or MAC address, else
// the only one with hardware, else (in a namespace) the only one.
func choose(list []card, want string) (string, error) {
	if want != "" {
		for _, c := range list {
			if c.name == want || strings.EqualFold(c.mac, want) || slices.Contains(c.others, want) {
				return c.name, nil
			}
		}
		return "", fmt.Errorf("%w is called %s or has that address; there is %s", errNoCard, want, names(list))
	}
	fit := slices.DeleteFunc(slices.Clone(list), func(c card) bool { return !c.real })
	if len(fit) == 0 {
		fit = list
	}
	switch len(fit) {
	case 0:
		return "", fmt.Errorf("%w is there: is the driver (virtio_net) loaded?", errNoCard)
	case 1:
		return fit[0].name, nil
	}
	return "", fmt.Errorf("there is more than one network card (%s): name one by link", names(fit))
}

func names(list []card) string {
	if len(list) == 0 {
		return "none at all"
	}
	var s []string
	for _, c := range list {
		s = append(s, c.name)
	}
	return strings.Join(s, ", ")
}
