package setup

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"time"

	"guestwire/guestagent/proto"
)

// Where things are in a guest.
const (
	defaultDir        = "/run/guestwire"
	defaultResolvConf = "/etc/resolv.conf"
)

// Config says where a Setup keeps what it must remember. Zero values stand for
// the defaults.
type Config struct {
	Dir        string // /run/guestwire
	ResolvConf string // /etc/resolv.conf
}

// Setup changes this machine's network.
type Setup struct {
	c   Config
	sys system
}

// system is the machine: what it has, and how that is changed. Of a link that is
// not there read has nothing, not even that it is down.
type system interface {
	cards() ([]card, error)
	read(link string, want, first State) (State, error)
	apply(link string, c Change) error
}

// New makes a Setup. Nothing is opened.
func New(c Config) *Setup {
	if c.Dir == "" {
		c.Dir = defaultDir
	}
	if c.ResolvConf == "" {
		c.ResolvConf = defaultResolvConf
	}
	return &Setup{c: c, sys: &machine{c: c}}
}

// Apply makes the machine what n wants, and returns what it has changed, also
// with an error. Until ctx ends it waits for a network card to appear.
func (s *Setup) Apply(ctx context.Context, n *proto.Network) ([]Change, error) {
	if err := n.Check(); err != nil {
		return nil, err
	}
	link, err := s.card(ctx, n.Link)
	if err != nil {
		return nil, err
	}
	j, err := openJournal(s.c.Dir)
	if err != nil {
		return nil, err
	}
	defer j.close()
	var back []Change
	if j.Link != "" && j.Link != link {
		if back, err = s.converge(j, State{}); err != nil {
			return back, fmt.Errorf("undo what was set up on %s: %w", j.Link, err)
		}
	}
	j.Link = link
	made, err := s.converge(j, wanted(n, link))
	return append(back, made...), err
}

// Undo takes back everything that Apply has changed since the machine started.
func (s *Setup) Undo() ([]Change, error) {
	j, err := openJournal(s.c.Dir)
	if err != nil {
		return nil, err
	}
	defer j.close()
	if j.Link == "" {
		return nil, nil
	}
	return s.converge(j, State{})
}

// rounds is how often changes are made: one may undo another (an IPv4 address
// takes the routes behind it along).
const rounds = 3

func (s *Setup) converge(j *journal, want State) ([]Change, error) {
	var made []Change
	failed := map[Key]error{}
	for round := 0; ; round++ {
		have, err := s.sys.read(j.Link, want, j.first)
		if err != nil {
			return made, err
		}
		if have[Key{Link, j.Link}] == "" {
			j.forgetLink()
		}
		displace(want, have, j.first)
		changes := plan(want, have, j.first)
		if len(changes) == 0 || round == rounds {
			settled(want, have, j.first)
			return effective(made, have), errors.Join(undone(changes, failed), j.save())
		}
		if err := j.note(changes); err != nil { // before anything is changed
			return made, err
		}
		for _, c := range changes {
			failed[c.Key] = s.sys.apply(j.Link, c)
			made = append(made, c)
		}
	}
}

// undone says of each change that was not to be had what the machine said, if it
// said anything.
func undone(changes []Change, failed map[Key]error) (all error) {
	for _, c := range changes {
		err := failed[c.Key]
		if err == nil {
			err = errors.New("the kernel or the device does not do it")
		}
		all = errors.Join(all, fmt.Errorf("%v: %w", c, err))
	}
	return all
}

// effective are the changes that there really were, each once.
func effective(made []Change, have State) (list []Change) {
	for _, c := range made {
		same := func(o Change) bool { return o.Key == c.Key }
		if have[c.Key] == c.To && !slices.ContainsFunc(list, same) {
			list = append(list, c)
		}
	}
	return list
}

// look is how often is looked for a card that is not there yet.
const look = 100 * time.Millisecond

func (s *Setup) card(ctx context.Context, want string) (string, error) {
	for {
		list, err := s.sys.cards()
		if err != nil {
			return "", err
		}
		name, err := choose(list, want)
		if !errors.Is(err, errNoCard) {
			return name, err
		}
		select {
		case <-ctx.Done():
			return "", err
		case <-time.After(look):
		}
	}
}
