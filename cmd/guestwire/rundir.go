package main

import (
	"fmt"
	"os"
	"path/filepath"
	"syscall"
)

// firstCID is the smallest address that a guest can have, lastCID the largest
// that `run` chooses by itself.
const (
	firstCID = 3
	lastCID  = firstCID + 999
)

// runDir is the folder of one `guestwire run`: guestwire-CID, which says where the
// host's processes find the guest, and which CIDs are in use. It is locked as long
// as it is used; one that a killed process has left behind is taken over.
type runDir struct {
	path string
	lock *os.File
}

// openRunDir makes the folder of a CID, for 0 of the smallest that is free.
func openRunDir(parent string, cid int64) (*runDir, int64, error) {
	if cid != 0 {
		d, err := lockDir(filepath.Join(parent, fmt.Sprintf("guestwire-%d", cid)))
		switch {
		case err == syscall.EWOULDBLOCK:
			err = fmt.Errorf("--guest-cid \"%d\": another guestwire run has given it to its guest: choose another one, or leave it out for one that is free", cid)
		case err != nil:
			err = fmt.Errorf("no place for the VM's sockets: %w (XDG_RUNTIME_DIR, or TMPDIR, names the folder for it)", err)
		}
		return d, cid, err
	}
	var last error
	for cid = firstCID; cid <= lastCID; cid++ {
		d, err := lockDir(filepath.Join(parent, fmt.Sprintf("guestwire-%d", cid)))
		if err == nil {
			return d, cid, nil
		}
		last = err
	}
	return nil, 0, fmt.Errorf("no place for the VM's sockets: no CID from %d to %d is free: %w (XDG_RUNTIME_DIR, or TMPDIR, names the folder for it)", firstCID, lastCID, last)
}

// lockDir makes and locks a folder that is ours alone.
func lockDir(path string) (*runDir, error) {
	for range 10 { // the one before us may remove it in between
		if err := os.Mkdir(path, 0o700); err != nil && !os.IsExist(err) {
			return nil, err
		}
		f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_DIRECTORY, 0)
		if os.IsNotExist(err) {
			continue
		}
		if err != nil {
			return nil, err
		}
		if err := claimDir(f, path); err != errDirGone {
			if err != nil {
				f.Close()
				return nil, err
			}
			return &runDir{path, f}, nil
		}
		f.Close()
	}
	return nil, fmt.Errorf("%s: comes and goes", path)
}

var errDirGone = fmt.Errorf("the folder has been removed meanwhile")

// claimDir locks an open folder and makes sure that it is still the one at path,
// and that nobody else owns it.
func claimDir(f *os.File, path string) error {
	if err := syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB); err != nil {
		return err
	}
	var open, there syscall.Stat_t
	if err := syscall.Fstat(int(f.Fd()), &open); err != nil {
		return err
	}
	if syscall.Lstat(path, &there) != nil || open.Ino != there.Ino || open.Dev != there.Dev {
		return errDirGone
	}
	if int(open.Uid) != os.Geteuid() || open.Mode&0o077 != 0 {
		return fmt.Errorf("%s: belongs to somebody else, or is open to others", path)
	}
	return nil
}

// close removes the folder.
func (d *runDir) close() {
	_ = os.RemoveAll(d.path)
	_ = d.lock.Close()
}
