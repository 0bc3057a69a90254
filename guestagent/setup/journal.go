package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// journal remembers what was there before we changed it. It is open while its
// lock is held.
type journal struct {
	Link  string  // "": nothing has been set up
	Was   []entry // first, as it is written
	path  string
	lock  *os.File
	first State
}

type entry struct {
	Kind  Kind
	Name  string
	Value string
}

// openJournal waits for whoever has it open.
func openJournal(dir string) (*journal, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	lock, err := os.OpenFile(filepath.Join(dir, "setup.lock"), os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, err
	}
	j := &journal{path: filepath.Join(dir, "setup.json"), lock: lock, first: State{}}
	if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
		lock.Close()
		return nil, err
	}
	if err := j.load(); err != nil {
		lock.Close()
		return nil, fmt.Errorf("%s: %w: what was changed before is not known, remove the file to begin anew", j.path, err)
	}
	return j, nil
}

func (j *journal) load() error {
	b, err := os.ReadFile(j.path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err == nil {
		err = json.Unmarshal(b, j)
	}
	for _, e := range j.Was {
		j.first[Key{e.Kind, e.Name}] = e.Value
	}
	return err
}

func (j *journal) close() { j.lock.Close() }

// note remembers what is about to be changed for the first time.
func (j *journal) note(changes []Change) error {
	for _, c := range changes {
		if _, known := j.first[c.Key]; !known {
			j.first[c.Key] = c.From
		}
	}
	return j.save()
}

// forgetLink drops what a link has taken along that is not there any more.
func (j *journal) forgetLink() {
	for key := range j.first {
		if key.Kind != DNS && key.Kind != Hostname && key.Kind != VsockBuffer {
			delete(j.first, key)
		}
	}
}

// save replaces the file in one step: a machine that dies meanwhile has the old
// one or the new one.
func (j *journal) save() error {
	j.Was = nil
	for key, was := range j.first {
		j.Was = append(j.Was, entry{key.Kind, key.Name, was})
	}
	if len(j.Was) == 0 {
		j.Link = ""
	}
	b, err := json.MarshalIndent(j, "", " ")
	if err != nil {
		return err
	}
	next := j.path + ".next"
	if err := os.WriteFile(next, b, 0o600); err != nil {
		return err
	}
	return os.Rename(next, j.path)
}
