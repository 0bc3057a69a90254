package vhostuser

import (
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"
)

const (
	defaultMode = 0o600 // whoever connects speaks for the guest and reads our device's memory of it
	backlog     = 8
	maxPath     = 107 // sun_path less its NUL
)

// fileID tells a socket's file from another that has taken its name.
type fileID struct{ dev, ino uint64 }

func idOf(path string) (fileID, uint32, error) {
	var st unix.Stat_t
	if err := unix.Lstat(path, &st); err != nil {
		return fileID{}, 0, err
	}
	return fileID{uint64(st.Dev), st.Ino}, st.Mode, nil
}

// abstract tells whether path is a name in the abstract namespace, which has no
// file and vanishes with its last user.
func abstract(path string) bool { return path[0] == '@' }

func newSocket() (int, error) {
	return unix.Socket(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC|unix.SOCK_NONBLOCK, 0)
}

func checkPath(path string) error {
	if len(path) > maxPath {
		return fmt.Errorf("socket path is %d bytes long, at most %d are possible: %s", len(path), maxPath, path)
	}
	return nil
}

// listenOn binds path and listens. A socket file that nobody listens on any more
// is replaced; everything else in the way is an error.
func listenOn(path string, mode os.FileMode) (fd int, id fileID, err error) {
	if err := checkPath(path); err != nil {
		return -1, id, err
	}
	if mode == 0 {
		mode = defaultMode
	}
	if fd, err = newSocket(); err != nil {
		return -1, id, fmt.Errorf("socket: %w", err)
	}
	defer func() {
		if err != nil {
			unix.Close(fd)
			fd = -1
		}
	}()
	// The file appears with the mode of the socket, so at no time with a wider one.
	if err = unix.Fchmod(fd, uint32(mode.Perm())); err != nil {
		return fd, id, fmt.Errorf("fchmod: %w", err)
	}
	addr := &unix.SockaddrUnix{Name: path}
	if err = unix.Bind(fd, addr); err == unix.EADDRINUSE && !abstract(path) {
		if err = removeStale(path); err == nil {
			err = unix.Bind(fd, addr)
		}
	}
	if err != nil {
		return fd, id, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	if !abstract(path) {
		if id, _, err = idOf(path); err == nil {
			err = unix.Chmod(path, uint32(mode.Perm())) // what the umask took away
		}
		if err != nil {
			return fd, id, fmt.Errorf("cannot listen on %s: %w", path, err)
		}
	}
	if err = unix.Listen(fd, backlog); err != nil {
		return fd, id, fmt.Errorf("cannot listen on %s: %w", path, err)
	}
	return fd, id, nil
}

// removeStale unlinks path if it is a socket that refuses connections.
func removeStale(path string) error {
	_, mode, err := idOf(path)
	switch {
	case err == unix.ENOENT:
		return nil // gone meanwhile
	case err != nil:
		return err
	case mode&unix.S_IFMT != unix.S_IFSOCK:
		return errors.New("it exists and is not a socket")
	}
	fd, err := newSocket()
	if err != nil {
		return err
	}
	defer unix.Close(fd)
	switch err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err {
	case unix.ECONNREFUSED:
		return unix.Unlink(path)
	case unix.ENOENT:
		return nil
	case nil, unix.EAGAIN, unix.EINPROGRESS:
		return errors.New("another process listens on it")
	default:
		return fmt.Errorf("it exists and cannot be tried: %w", err)
	}
}

// removeOwn unlinks path if it still is the socket that listenOn made.
func removeOwn(path string, id fileID) {
	if now, _, err := idOf(path); err == nil && now == id {
		unix.Unlink(path)
	}
}

// connectTo connects to a listening frontend. It does not wait: a unix socket
// connects at once or not at all.
func connectTo(path string) (int, error) {
	if err := checkPath(path); err != nil {
		return -1, err
	}
	fd, err := newSocket()
	if err != nil {
		return -1, fmt.Errorf("socket: %w", err)
	}
	if err := unix.Connect(fd, &unix.SockaddrUnix{Name: path}); err != nil {
		unix.Close(fd)
		return -1, err
	}
	return fd, nil
}

// inherited judges a socket that we were started with, and tells whether it
// listens.
func inherited(fd int) (listening bool, err error) {
	domain, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_DOMAIN)
	if err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	typ, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_TYPE)
	if err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if domain != unix.AF_UNIX || typ != unix.SOCK_STREAM {
		return false, fmt.Errorf("descriptor %d is not a unix stream socket", fd)
	}
	acc, err := unix.GetsockoptInt(fd, unix.SOL_SOCKET, unix.SO_ACCEPTCONN)
	if err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	if err := unix.SetNonblock(fd, true); err != nil {
		return false, fmt.Errorf("descriptor %d: %w", fd, err)
	}
	unix.CloseOnExec(fd)
	return acc != 0, nil
}
