package unixsock

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	// MaxPath is the most bytes a path has.
	MaxPath = 107

	defaultMode    = 0o600
	defaultBacklog = 8
)

// Options say what kind of socket to make. The zero value is a stream socket for
// our own user alone.
type Options struct {
	Type     int         // unix.SOCK_STREAM (also 0), unix.SOCK_SEQPACKET, or unix.SOCK_DGRAM, which is bound only
	Mode     os.FileMode // of the file; 0: 0600
	UID, GID int         // of the file; 0 or less: as it is created
	Backlog  int         // connections that wait to be accepted; 0: 8
}

// Listener is a listening socket and the file that it is found by.
type Listener struct {
	FD   int    // -1: closed
	path string // "": no file to remove
	file fileID
}

// fileID tells a socket's file from another that has taken its name.
type fileID struct{ dev, ino uint64 }

// Listen makes a listening socket at path.
func Listen(path string, o Options) (Listener, error) {
	l := Listener{FD: -1}
	if err := CheckPath(path); err != nil {
		return l, err
	}
	if o.Mode == 0 {
		o.Mode = defaultMode
	}
	if o.Backlog == 0 {
		o.Backlog = defaultBacklog
	}
	if err := l.open(path, o); err != nil {
		l.Close()
		return l, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return l, nil
}

func (l *Listener) open(path string, o Options) (err error) {
	if l.FD, err = socket(o.Type); err != nil {
		return err
	}
	// The file gets the socket's mode, less the umask: at no time a wider one.
	if err := unix.Fchmod(l.FD, uint32(o.Mode.Perm())); err != nil {
		return err
	}
	if err := bind(l.FD, path); err != nil {
		return err
	}
	if !Abstract(path) {
		if err := l.own(path, o); err != nil {
			return err
		}
	}
	if o.Type == unix.SOCK_DGRAM {
		return nil
	}
	return unix.Listen(l.FD, o.Backlog)
}

func bind(fd int, path string) error {
	addr := &unix.SockaddrUnix{Name: path}
	err := unix.Bind(fd, addr)
	if err == unix.EADDRINUSE && !Abstract(path) {
		if err := removeStale(path); err != nil {
			return err
		}
		err = unix.Bind(fd, addr)
	}
	switch err {
	case unix.EADDRINUSE:
		return errInUse
	case unix.ENOENT:
		return errors.New("its folder does not exist")
	}
	return err
}

// own remembers the file and gives it the owner and mode that were asked for.
func (l *Listener) own(path string, o Options) error {
	id, mode, err := identify(path)
	if err != nil {
		return err
	}
	l.path, l.file = path, id
	if o.UID > 0 || o.GID > 0 {
		if err := unix.Lchown(path, owner(o.UID), owner(o.GID)); err != nil {
			return fmt.Errorf("chown to %d:%d: %w", owner(o.UID), owner(o.GID), err)
		}
	}
	if mode&0o777 == uint32(o.Mode.Perm()) {
		return nil
	}
	// What the umask took away. Kernels before 6.6 can only follow links here.
	err = unix.Fchmodat(unix.AT_FDCWD, path, uint32(o.Mode.Perm()), unix.AT_SYMLINK_NOFOLLOW)
	if err == unix.EOPNOTSUPP {
		err = unix.Chmod(path, uint32(o.Mode.Perm()))
	}
	return err
}

// owner is the argument of chown(2): -1 leaves what there is.
func owner(id int) int {
	if id <= 0 {
		return -1
	}
	return id
}

// Close closes the socket and removes its file. It may be called again.
func (l *Listener) Close() {
	if l.FD >= 0 {
		unix.Close(l.FD)
		l.FD = -1
	}
	if l.path != "" {
		if now, _, err := identify(l.path); err == nil && now == l.file {
			unix.Unlink(l.path)
		}
		l.path = ""
	}
}

var errInUse = errors.New("another process listens on it")

// removeStale unlinks path if it is a socket that refuses connections. The type
// of socket that we try it with does not matter: a socket that somebody has open
// and that is of another type gives EPROTOTYPE.
func removeStale(path string) error {
	_, mode, err := identify(path)
	switch {
	case err == unix.ENOENT:
		return nil // gone meanwhile
	case err != nil:
		return err
	case mode&unix.S_IFMT != unix.S_IFSOCK:
		return errors.New("it exists and is not a socket: remove it or choose another path")
	}
	fd, errno := Dial(path, unix.SOCK_STREAM)
	switch errno {
	case unix.ECONNREFUSED:
		return unix.Unlink(path)
	case unix.ENOENT:
		return nil
	case 0:
		unix.Close(fd)
		return errInUse
	case unix.EAGAIN, unix.EPROTOTYPE: // its backlog is full; it is of another type
		return errInUse
	}
	return fmt.Errorf("it exists and cannot be tried: %w", errno)
}

// Dial connects a socket of the given type to path. It does not wait: a UNIX
// socket connects at once or not at all. EAGAIN says that the listener's backlog
// is full.
func Dial(path string, typ int) (fd int, errno unix.Errno) {
	fd, err := socket(typ)
	if err == nil {
		if err = unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err == nil {
			return fd, 0
		}
		unix.Close(fd)
	}
	if errors.As(err, &errno) {
		return -1, errno
	}
	return -1, unix.EINVAL
}

// CheckPath says why path cannot be that of a socket, nil if it can.
func CheckPath(path string) error {
	switch {
	case path == "":
		return errors.New("socket path is empty")
	case len(path) > MaxPath:
		return fmt.Errorf("socket path is %d bytes long, at most %d are possible: %s", len(path), MaxPath, path)
	}
	return nil
}

// Abstract tells whether path is a name in the abstract namespace.
func Abstract(path string) bool { return path[0] == '@' }

func socket(typ int) (int, error) {
	if typ == 0 {
		typ = unix.SOCK_STREAM
	}
	return unix.Socket(unix.AF_UNIX, typ|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

func identify(path string) (fileID, uint32, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, 0, err
	}
	return fileID{uint64(st.Dev), st.Ino}, st.Mode, nil
}
