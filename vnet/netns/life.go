package netns

import (
	"fmt"
	"path/filepath"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// Life watches an existing namespace on a loop.
type Life struct {
	loop  *eventloop.Loop
	token eventloop.Token
	fd    int // of the process, or of the notices of the file's folder
	path  string
	file  unix.Stat_t
	gone  func()
}

// Follow has gone called once, on the loop, when the process that names the
// namespace has ended or the file that names it is another or none. For a new
// namespace it does nothing: that ends with its command.
func (n *Namespace) Follow(loop *eventloop.Loop, gone func()) (*Life, error) {
	l := &Life{loop: loop, fd: -1, gone: gone, path: n.target.Path}
	if l.path == "" {
		return l, nil
	}
	err := l.open(n.target.PID)
	if err == nil {
		l.token, err = loop.Add(l.fd, eventloop.In, l, 0)
	}
	if err != nil {
		l.Close()
		return nil, fmt.Errorf("watch %s: %w", l.path, err)
	}
	loop.Again(l.token) // it may have gone meanwhile
	return l, nil
}

func (l *Life) open(pid int) (err error) {
	if pid != 0 {
		l.path = ""
		l.fd, err = unix.PidfdOpen(pid, 0)
		return err
	}
	if err = unix.Stat(l.path, &l.file); err != nil {
		return err
	}
	if l.fd, err = unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK); err != nil {
		return err
	}
	const leaves = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	_, err = unix.InotifyAddWatch(l.fd, filepath.Dir(l.path), leaves)
	return err
}

// Ready implements eventloop.Source.
func (l *Life) Ready(_ uint32, ev eventloop.Events) {
	if l.path == "" && ev == eventloop.Again {
		return // a process tells by itself
	}
	if l.path != "" {
		var b [4096]byte
		for {
			if n, err := unix.Read(l.fd, b[:]); err != nil || n <= 0 {
				break
			}
		}
		var now unix.Stat_t
		if unix.Stat(l.path, &now) == nil && now.Ino == l.file.Ino && now.Dev == l.file.Dev {
			return
		}
	}
	l.Close()
	l.gone()
}

// Close ends the watch.
func (l *Life) Close() {
	if l == nil || l.fd < 0 {
		return
	}
	l.loop.Remove(l.token)
	unix.Close(l.fd)
	l.fd = -1
}
