package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// Every run has a CID and a folder of its own; what a killed one left is used
// again; what is not ours is left alone.
func TestRunDir(t *testing.T) {
	parent := t.TempDir()
	open := func(cid int64, want int64) *runDir {
		t.Helper()
		d, got, err := openRunDir(parent, cid)
		if err != nil {
			t.Fatal(err)
		}
		if got != want || d.path != filepath.Join(parent, fmt.Sprintf("guestwire-%d", want)) {
			t.Errorf("got CID %d in %s, want %d", got, d.path, want)
		}
		return d
	}
	a, b := open(0, 3), open(0, 4)
	if _, _, err := openRunDir(parent, 4); err == nil || !strings.Contains(err.Error(), "--guest-cid") {
		t.Errorf("a CID in use: %v", err)
	}
	c := open(100, 100)
	a.close()
	if _, err := os.Lstat(a.path); !os.IsNotExist(err) {
		t.Errorf("the folder is still there: %v", err)
	}
	if err := os.Symlink(parent, filepath.Join(parent, "guestwire-3")); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(parent, "guestwire-5"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.Chmod(filepath.Join(parent, "guestwire-5"), 0o777); err != nil {
		t.Fatal(err)
	}
	d := open(0, 6) // 3 is a link, 4 in use, 5 open to others
	b.lock.Close()  // as when its process is killed
	e := open(0, 4)
	for _, d := range []*runDir{c, d, e} {
		d.close()
	}
	left, err := os.ReadDir(parent)
	if err != nil || len(left) != 2 {
		t.Errorf("left behind: %v", left)
	}
}
