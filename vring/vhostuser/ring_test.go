package vhostuser

import (
	"fmt"
	"strings"
	"testing"
)

func (s RingState) row() string {
	has := []byte("---")
	for i, c := range "nak" { // num, addr, kick
		if s.Has&(1<<i) != 0 {
			has[i] = byte(c)
		}
	}
	en := "off"
	if s.Enabled {
		en = "on"
	}
	return fmt.Sprintf("%v %s %s", s.Phase, en, has)
}

// stepTable is the life of a ring that lacks nothing: for every state and event
// the next state and what is done. A stopped one lacks its kick, as after
// GET_VRING_BASE.
const stepTable = `
stopped off na- | NUM          -> stopped off na-
stopped off na- | ADDR         -> stopped off na-
stopped off na- | ADDR (moved) -> stopped off na-
stopped off na- | BASE         -> stopped off na-
stopped off na- | KICK         -> waiting off nak : try
stopped off na- | GET_BASE     -> stopped off na-
stopped off na- | ENABLE 1     -> stopped on na-  : enable
stopped off na- | ENABLE 0     -> stopped off na-
stopped off na- | mapped       -> stopped off na-
stopped off na- | unmapped     -> stopped off na-
stopped off na- | break        -> stopped off na-
stopped off na- | reset        -> stopped off ---
stopped on na-  | NUM          -> stopped on na-
stopped on na-  | ADDR         -> stopped on na-
stopped on na-  | ADDR (moved) -> stopped on na-
stopped on na-  | BASE         -> stopped on na-
stopped on na-  | KICK         -> waiting on nak  : try
stopped on na-  | GET_BASE     -> stopped on na-
stopped on na-  | ENABLE 1     -> stopped on na-
stopped on na-  | ENABLE 0     -> stopped off na- : disable
stopped on na-  | mapped       -> stopped on na-
stopped on na-  | unmapped     -> stopped on na-
stopped on na-  | break        -> stopped on na-
stopped on na-  | reset        -> stopped off --- : disable
waiting off nak | NUM          -> waiting off nak : try
waiting off nak | ADDR         -> waiting off nak : try
waiting off nak | ADDR (moved) -> waiting off nak : try
waiting off nak | BASE         -> waiting off nak
waiting off nak | KICK         -> waiting off nak : try
waiting off nak | GET_BASE     -> stopped off na-
waiting off nak | ENABLE 1     -> waiting on nak  : enable
waiting off nak | ENABLE 0     -> waiting off nak
waiting off nak | mapped       -> running off nak : start
waiting off nak | unmapped     -> waiting off nak
waiting off nak | break        -> waiting off nak
waiting off nak | reset        -> stopped off ---
waiting on nak  | NUM          -> waiting on nak  : try
waiting on nak  | ADDR         -> waiting on nak  : try
waiting on nak  | ADDR (moved) -> waiting on nak  : try
waiting on nak  | BASE         -> waiting on nak
waiting on nak  | KICK         -> waiting on nak  : try
waiting on nak  | GET_BASE     -> stopped on na-
waiting on nak  | ENABLE 1     -> waiting on nak
waiting on nak  | ENABLE 0     -> waiting off nak : disable
waiting on nak  | mapped       -> running on nak  : start+poke
waiting on nak  | unmapped     -> waiting on nak
waiting on nak  | break        -> waiting on nak
waiting on nak  | reset        -> stopped off --- : disable
running off nak | NUM          -> stopped off na- : stop
running off nak | ADDR         -> running off nak : relog
running off nak | ADDR (moved) -> waiting off nak : stop+try
running off nak | BASE         -> stopped off na- : stop
running off nak | KICK         -> running off nak : poke
running off nak | GET_BASE     -> stopped off na- : stop
running off nak | ENABLE 1     -> running on nak  : enable+poke
running off nak | ENABLE 0     -> running off nak
running off nak | mapped       -> running off nak : remap+poke
running off nak | unmapped     -> waiting off nak : stop
running off nak | break        -> broken off nak  : stop
running off nak | reset        -> stopped off --- : stop
running on nak  | NUM          -> running on nak  : refuse
running on nak  | ADDR         -> running on nak  : relog
running on nak  | ADDR (moved) -> waiting on nak  : stop+try
running on nak  | BASE         -> running on nak  : refuse
running on nak  | KICK         -> running on nak  : poke
running on nak  | GET_BASE     -> stopped on na-  : stop
running on nak  | ENABLE 1     -> running on nak
running on nak  | ENABLE 0     -> running off nak : disable
running on nak  | mapped       -> running on nak  : remap+poke
running on nak  | unmapped     -> waiting on nak  : stop
running on nak  | break        -> broken on nak   : stop
running on nak  | reset        -> stopped off --- : stop+disable
broken off nak  | NUM          -> stopped off na-
broken off nak  | ADDR         -> broken off nak
broken off nak  | ADDR (moved) -> broken off nak
broken off nak  | BASE         -> stopped off na-
broken off nak  | KICK         -> broken off nak
broken off nak  | GET_BASE     -> stopped off na-
broken off nak  | ENABLE 1     -> broken on nak   : enable
broken off nak  | ENABLE 0     -> broken off nak
broken off nak  | mapped       -> broken off nak
broken off nak  | unmapped     -> broken off nak
broken off nak  | break        -> broken off nak
broken off nak  | reset        -> stopped off ---
broken on nak   | NUM          -> broken on nak   : refuse
broken on nak   | ADDR         -> broken on nak
broken on nak   | ADDR (moved) -> broken on nak
broken on nak   | BASE         -> broken on nak   : refuse
broken on nak   | KICK         -> broken on nak
broken on nak   | GET_BASE     -> stopped on na-
broken on nak   | ENABLE 1     -> broken on nak
broken on nak   | ENABLE 0     -> broken off nak  : disable
broken on nak   | mapped       -> broken on nak
broken on nak   | unmapped     -> broken on nak
broken on nak   | break        -> broken on nak
broken on nak   | reset        -> stopped off --- : disable
`

func TestRingSteps(t *testing.T) {
	want := map[string]string{}
	for _, line := range strings.Split(strings.TrimSpace(stepTable), "\n") {
		from, to, ok := strings.Cut(line, "->")
		if !ok {
			t.Fatalf("no arrow in %q", line)
		}
		want[strings.Join(strings.Fields(from), " ")] = strings.Join(strings.Fields(to), " ")
	}
	seen := 0
	for _, phase := range []Phase{Stopped, Waiting, Running, Broken} {
		for _, on := range []bool{false, true} {
			s := RingState{phase, on, HasAll}
			if phase == Stopped {
				s.Has &^= HasKick
			}
			for ev := Event(0); ev < NumEvents; ev++ {
				from := s.row() + " | " + ev.String()
				next, act := s.Step(ev)
				got := next.row()
				if act != 0 {
					got += " : " + act.String()
				}
				w, ok := want[from]
				if !ok {
					t.Errorf("no row for %q", from)
				} else if got != w {
					t.Errorf("%s\n got %s\nwant %s", from, got, w)
				}
				seen++
			}
		}
	}
	if seen != len(want) {
		t.Errorf("%d rows in the table, %d states and events", len(want), seen)
	}
}

// Whatever comes in whatever order, these hold.
func TestRingInvariants(t *testing.T) {
	reached := map[RingState]bool{{}: true}
	for todo := []RingState{{}}; len(todo) > 0; todo = todo[1:] {
		s := todo[0]
		for ev := Event(0); ev < NumEvents; ev++ {
			next, act := s.Step(ev)
			at := fmt.Sprintf("%s | %v -> %s : %v", s.row(), ev, next.row(), act)
			switch {
			case next.Phase != Stopped && next.Has != HasAll:
				t.Errorf("%s: past stopped without everything it needs", at)
			case next.Phase == Stopped && next.Has == HasAll:
				t.Errorf("%s: stopped, though nothing lacks", at)
			case act&ActStop != 0 && s.Phase != Running:
				t.Errorf("%s: stops what does not run", at)
			case s.Phase == Running && next.Phase != Running && act&ActStop == 0:
				t.Errorf("%s: not stopped", at)
			case next.Phase == Running && s.Phase != Running && act&ActStart == 0:
				t.Errorf("%s: not started", at)
			case act&ActStart != 0 && ev != EvMapped:
				t.Errorf("%s: started without memory", at)
			case act&(ActRemap|ActRelog) != 0 && next.Phase != Running:
				t.Errorf("%s: acts on a queue that is not there", at)
			case act&ActTry != 0 && next.Phase != Waiting:
				t.Errorf("%s: tried when not waiting", at)
			case act&ActRefuse != 0 && (next != s || act != ActRefuse):
				t.Errorf("%s: refused, and yet something changes", at)
			case ev == EvKick && s.Enabled != next.Enabled:
				t.Errorf("%s: SET_VRING_KICK changed enabling", at)
			}
			if !reached[next] {
				reached[next] = true
				todo = append(todo, next)
			}
		}
	}
	// 8 sets of what was told, of which the full one has 3 phases instead of 1,
	// each enabled or not.
	if want := (7 + 3) * 2; len(reached) != want {
		t.Errorf("%d states reachable, want %d", len(reached), want)
	}
}

// In whatever order a ring is told what it needs, it starts at the last piece.
func TestRingStartsInAnyOrder(t *testing.T) {
	for _, order := range [][]Event{
		{EvNum, EvMove, EvKick}, {EvNum, EvKick, EvMove}, {EvMove, EvNum, EvKick},
		{EvMove, EvKick, EvNum}, {EvKick, EvNum, EvMove}, {EvKick, EvMove, EvNum},
	} {
		s := RingState{}
		for i, ev := range order {
			next, act := s.Step(ev)
			if (act == ActTry) != (i == 2) {
				t.Errorf("%v: step %d does %v", order, i, act)
			}
			s = next
		}
	}
}
