package backend

import (
	"fmt"
	"strconv"
	"strings"
	"syscall"
	"time"

	"guestwire/test/harness/spawn"
)

func containsWord(s, word string) bool {
	for _, f := range strings.Fields(s) {
		if f == word {
			return true
		}
	}
	return false
}

// Stats asks guestwire for its counters (SIGUSR1: one "name value" a line).
func (d *Daemon) Stats() (map[string]int64, error) { return counters(d.Process, d.Config.Kind) }

func counters(d *spawn.Process, kind string) (map[string]int64, error) {
	before := len(d.Output())
	if err := d.Signal(syscall.SIGUSR1); err != nil {
		return nil, err
	}
	m := map[string]int64{}
	for end := time.Now().Add(3 * time.Second); time.Now().Before(end); {
		time.Sleep(100 * time.Millisecond) // all lines are written at once
		for _, line := range strings.Split(d.Output()[before:], "\n") {
			if f := strings.Fields(line); len(f) == 2 {
				if v, err := strconv.ParseInt(f[1], 10, 64); err == nil {
					m[f[0]] = v
				}
			}
		}
		if len(m) > 0 {
			return m, nil
		}
	}
	return nil, fmt.Errorf("no statistics from %s:\n%s", kind, d.Tail(10))
}
