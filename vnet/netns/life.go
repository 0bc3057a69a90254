package netns

import (
	"fmt"
	"path/filepath"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
)

// Life watches an existing namespace on a loop.
type Life struct {
	loop  *eventloop.Loop
	token eventloop.Token
	fd    int // of the process, or of the notices of the file's folder; -1: none
	timer eventloop.TimerID
	path  string // of the file; "" for a process
	file  unix.Stat_t
	gone  func()
}

// lookTime is how often a file is looked at where the kernel has no notices to give:
// users have 128 of them by default (fs.inotify.max_user_instances).
const lookTime = eventloop.Time(time.Second)

// Follow has gone called once, on the loop, when the process that names the
// namespace has ended or the file that names it is another or none. For a new
// namespace it does nothing: that ends with its command.
func (n *Namespace) Follow(loop *eventloop.Loop, gone func()) (*Life, error) {
	l := &Life{loop: loop, fd: -1, gone: gone, path: n.target.Path}
	if l.path == "" {
		return l, nil
	}
	l.timer = loop.Timers().New(l, 0)
	if err := l.open(n.target.PID); err != nil {
		l.Close()
		return nil, fmt.Errorf("watch %s: %w", n.target.Path, err)
	}
	if l.fd >= 0 {
		loop.Again(l.token) // it may have gone meanwhile
	} else {
		loop.Timers().Set(l.timer, loop.Now()+lookTime)
	}
	return l, nil
}

func (l *Life) open(pid int) (err error) {
	if pid != 0 {
		l.path = ""
		if l.fd, err = unix.PidfdOpen(pid, 0); err != nil {
			return err
		}
	} else if err = unix.Stat(l.path, &l.file); err != nil {
		return err
	} else if l.fd = notices(filepath.Dir(l.path)); l.fd < 0 {
		return nil
	}
	l.token, err = l.loop.Add(l.fd, eventloop.In, l, 0)
	return err
}

// notices tells of what happens to the files of a folder; -1: it cannot.
func notices(dir string) int {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return -1
	}
	const leaves = unix.IN_DELETE | unix.IN_MOVED_FROM | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE_SELF | unix.IN_MOVE_SELF
	if _, err = unix.InotifyAddWatch(fd, dir, leaves); err != nil {
		unix.Close(fd)
		return -1
	}
	return fd
}

// Ready implements eventloop.Source.
func (l *Life) Ready(_ uint32, ev eventloop.Events) {
	if l.path == "" {
		if ev != eventloop.Again { // a process tells by itself
			l.end()
		}
		return
	}
	var b [4096]byte
	for {
		if n, err := unix.Read(l.fd, b[:]); err != nil || n <= 0 {
			break
		}
	}
	if !l.there() {
		l.end()
	}
}

// Expired implements eventloop.Expirer.
func (l *Life) Expired(uint32) {
	if !l.there() {
		l.end()
		return
	}
	l.loop.Timers().Set(l.timer, l.loop.Now()+lookTime)
}

// there says that the file is still the one it was.
func (l *Life) there() bool {
	var now unix.Stat_t
	return unix.Stat(l.path, &now) == nil && now.Ino == l.file.Ino && now.Dev == l.file.Dev
}

func (l *Life) end() {
	l.Close()
	l.gone()
}

// Close ends the watch.
func (l *Life) Close() {
	if l == nil || l.timer == 0 {
		return
	}
	l.loop.Timers().Free(l.timer)
	l.timer = 0
	if l.fd >= 0 {
		l.loop.Remove(l.token)
		unix.Close(l.fd)
		l.fd = -1
	}
}
