package hostcheck

import (
	"strings"
	"testing"
)

// Every row says what it found, what for, and what to do about what is missing.
func TestRows(t *testing.T) {
	seen := map[string]bool{}
	for _, it := range All() {
		if it.Name == "" || it.Found == "" || it.Gives == "" || seen[it.Name] {
			t.Errorf("row %+v", it)
		}
		if it.Level == OK && it.Hint != "" {
			t.Errorf("%s is ok and has a hint: %s", it.Name, it.Hint)
		}
		seen[it.Name] = true
	}
	if !seen["TCP peek offset, IPv4"] || !seen["TCP peek offset, IPv6"] {
		t.Errorf("rows %v", seen)
	}
}

// What is missing is told with what to do about it; what is broken makes the host
// unusable.
func TestPrint(t *testing.T) {
	var b strings.Builder
	if !Print(&b, []Item{{Name: "x", Level: Missing, Found: "no", Gives: "speed", Hint: "buy"}}) || !strings.Contains(b.String(), "x: buy") {
		t.Errorf("printed %q", b.String())
	}
	if Print(&b, []Item{{Name: "y", Level: Broken}}) {
		t.Error("usable although something is broken")
	}
}
