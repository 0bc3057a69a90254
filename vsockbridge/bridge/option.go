package bridge

import (
	"fmt"
	"os"
	"os/user"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// option reads NAME or NAME=VALUE.
func (a *Address) option(s string) error {
	name, value, has := strings.Cut(s, "=")
	if !strings.Contains(" "+a.kind.options, " "+name+" ") {
		return fmt.Errorf("%s has no option %q: %s (a comma begins an option and cannot be part of a path)", a.kind.name, name, a.known())
	}
	switch flag := name == "frame" || name == "once" || name == "eager"; {
	case flag && has:
		return fmt.Errorf("option %s takes no value", name)
	case !flag && !has:
		return fmt.Errorf("option %s needs a value: %s=VALUE", name, name)
	}
	var err error
	switch name {
	case "frame":
		a.Frame = true
	case "once":
		a.Once = true
	case "eager":
		a.Eager = true
	case "type":
		a.Type, err = socketType(value)
	case "wait":
		if a.Wait, err = time.ParseDuration(value); err != nil || a.Wait < 0 {
			err = fmt.Errorf("wait=%s: use a duration such as 500ms, 30s or 5m", value)
		}
	case "mode":
		var n uint64
		if n, err = strconv.ParseUint(value, 8, 32); err != nil || n == 0 || n > 0o777 {
			err = fmt.Errorf("mode=%s: use an octal file mode such as 0660", value)
		}
		a.Mode = os.FileMode(n)
	case "owner":
		a.UID, a.GID, err = owner(value)
	case "buffer":
		a.Buffer, err = size(value)
	}
	if err == nil {
		err = a.consistent()
	}
	return err
}

func (a *Address) known() string {
	names := strings.Fields(a.kind.options)
	if len(names) == 0 {
		return "it has none"
	}
	return "it has " + strings.Join(names, ", ")
}

func (a *Address) consistent() error {
	switch {
	case a.Frame && a.Type != unix.SOCK_STREAM:
		return fmt.Errorf("frame is for streams: seqpacket and dgram sockets keep messages apart by themselves")
	case a.Type == unix.SOCK_DGRAM && a.kind.name == "unix-listen":
		return fmt.Errorf("a datagram socket does not listen: use unix-recv:%s", a.Path)
	case a.Type == unix.SOCK_DGRAM && strings.HasPrefix(a.kind.name, "vsock"):
		return fmt.Errorf("there are no vsock datagrams in Linux: use type=seqpacket, or a stream with frame")
	}
	return nil
}

func socketType(s string) (int, error) {
	switch s {
	case "stream":
		return unix.SOCK_STREAM, nil
	case "seqpacket":
		return unix.SOCK_SEQPACKET, nil
	case "dgram":
		return unix.SOCK_DGRAM, nil
	}
	return 0, fmt.Errorf("type=%s: use stream, seqpacket or dgram", s)
}

// owner reads USER, USER:GROUP or :GROUP, by name or number.
func owner(s string) (uid, gid int, err error) {
	uid, gid = -1, -1
	u, g, _ := strings.Cut(s, ":")
	if u == "" && g == "" {
		return uid, gid, fmt.Errorf("owner=%s: use USER, USER:GROUP or :GROUP", s)
	}
	if u != "" {
		if uid, err = strconv.Atoi(u); err != nil {
			x, err := user.Lookup(u)
			if err != nil {
				return uid, gid, fmt.Errorf("owner=%s: this machine has no user %s", s, u)
			}
			uid, _ = strconv.Atoi(x.Uid)
		}
	}
	if g != "" {
		if gid, err = strconv.Atoi(g); err != nil {
			x, err := user.LookupGroup(g)
			if err != nil {
				return uid, gid, fmt.Errorf("owner=%s: this machine has no group %s", s, g)
			}
			gid, _ = strconv.Atoi(x.Gid)
		}
	}
	if os.Geteuid() != 0 && (uid == 0 || gid == 0) {
		return uid, gid, fmt.Errorf("owner=%s: only root can give a file to root", s)
	}
	return uid, gid, nil
}

// leastBuffer is the kernel's default for vsock. Less is not taken: the connection
// is open when it is set, and its peer may have sent what the default had promised
// room for, which the kernel would drop.
const leastBuffer = 256 << 10

// size reads a number of bytes, with K or M for KiB or MiB.
func size(s string) (uint64, error) {
	digits, unit := s, uint64(1)
	switch {
	case strings.HasSuffix(s, "K"):
		digits, unit = s[:len(s)-1], 1<<10
	case strings.HasSuffix(s, "M"):
		digits, unit = s[:len(s)-1], 1<<20
	}
	n, err := strconv.ParseUint(digits, 10, 32)
	if err != nil || n*unit < leastBuffer || n*unit > 1<<30 {
		return 0, fmt.Errorf("buffer=%s: use a number of bytes from 256K, the kernel's default, to 1024M, such as 4M", s)
	}
	return n * unit, nil
}
