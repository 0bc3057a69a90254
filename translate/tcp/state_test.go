package tcp

import (
	"os"
	"strings"
	"testing"
)

// documented reads the table of doc.go, which was written from RFC 9293 3.3.2 and
// 3.10, not from the code.
func documented(t *testing.T) map[[2]string][2]string {
	t.Helper()
	text, err := os.ReadFile("doc.go")
	if err != nil {
		t.Fatal(err)
	}
	all := []string{"syn-received", "syn-sent", "established", "close-wait", "fin-wait-1", "fin-wait-2", "closing", "last-ack"}
	table := map[[2]string][2]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(strings.TrimPrefix(line, "//"))
		if !strings.HasPrefix(line, "//\t") || len(f) < 4 || f[0] != "any" && stateByName(f[0]) == nStates || eventByName(f[1]) == nEvents {
			continue
		}
		states := []string{f[0]}
		if f[0] == "any" {
			states = all
			if f[1] == "renewed" {
				states = append(states, "connecting", "time-wait")
			}
		}
		for _, s := range states {
			k := [2]string{s, f[1]}
			if _, twice := table[k]; twice {
				t.Errorf("%v documented twice", k)
			}
			table[k] = [2]string{f[2], strings.Join(f[3:], "+")}
		}
	}
	return table
}

func stateByName(name string) State {
	for s := State(0); s < nStates; s++ {
		if s.String() == name {
			return s
		}
	}
	return nStates
}

func eventByName(name string) Event {
	for ev := Event(0); ev < nEvents; ev++ {
		if ev.String() == name {
			return ev
		}
	}
	return nEvents
}

// Every state with every event.
func TestStep(t *testing.T) {
	table := documented(t)
	if len(table) < 60 {
		t.Fatalf("%d rows found in doc.go", len(table))
	}
	for s := Closed; s < nStates; s++ {
		for ev := Event(0); ev < nEvents; ev++ {
			want, ok := table[[2]string{s.String(), ev.String()}]
			if !ok {
				want = [2]string{s.String(), "-"}
			}
			to, do := step(s, ev)
			if to.String() != want[0] || do.String() != want[1] {
				t.Errorf("%v, %v: %v %v; documented %v %v", s, ev, to, do, want[0], want[1])
			}
		}
	}
}

// What must hold of any such machine.
func TestStepInvariants(t *testing.T) {
	for s := Closed; s < nStates; s++ {
		for ev := Event(0); ev < nEvents; ev++ {
			to, do := step(s, ev)
			if (to == Closed && s != Closed) != (do&Free != 0) {
				t.Errorf("%v, %v: closed and free must come together", s, ev)
			}
			if do&CloseHost != 0 && do&AbortHost != 0 {
				t.Errorf("%v, %v: closed twice", s, ev)
			}
			if to == Aborted && s != Aborted && do&(SendReset|CloseHost|AbortHost|StartLinger) == 0 {
				t.Errorf("%v, %v: aborted without a reset", s, ev)
			}
			if (to == TimeWait || to == Aborted) && to != s && do&StartLinger == 0 {
				t.Errorf("%v, %v: lingers without a timer", s, ev)
			}
			if do&QueueFin != 0 && s.halfOpen() {
				t.Errorf("%v, %v: FIN before the handshake", s, ev)
			}
			if s != Closed {
				if end, _ := step(s, Renewed); end != Closed {
					t.Errorf("%v survives a new guest", s)
				}
				if next, _ := step(s, GiveUp); next != Closed && next != Aborted {
					t.Errorf("%v survives giving up", s)
				}
			}
		}
	}
	if to, do := step(nStates, HostUp); to != nStates || do != 0 {
		t.Error("a state that does not exist")
	}
	if to, do := step(Established, nEvents); to != Established || do != 0 {
		t.Error("an event that does not exist")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	for d := Drop(0); d <= NumDrops; d++ {
		name := d.String()
		if seen[name] || name == "" || strings.ContainsAny(name, " _") {
			t.Errorf("drop %d is called %q", d, name)
		}
		seen[name] = true
	}
	if State(99).String() != "invalid" || Event(99).String() != "invalid" || Action(0).String() != "-" {
		t.Error("names out of range")
	}
	if got := (SendReset | Free).String(); got != "send-reset+free" {
		t.Error(got)
	}
}
