package hostside

import (
	"bytes"
	"errors"
	"fmt"
	"strconv"

	"golang.org/x/sys/unix"
)

// maxLine is the most bytes of a CONNECT line, its newline included.
const maxLine = 32

// OKLine is what a client of the hybrid protocol reads first, once the guest has
// accepted.
type OKLine uint8

const (
	// OKAlways is `OK <host port>`, as Firecracker has it. Host ports have up to ten
	// digits.
	OKAlways OKLine = iota

	// OKNever is nothing: systemd-ssh-proxy before 259 hands whatever it reads to
	// ssh.
	OKNever

	// OKShort is `OK <low 16 bits of the host port>`: at most nine bytes, as many as
	// newer ones of systemd look at, whatever numbers the device uses. Those of ours
	// fit in any case.
	OKShort
)

// ParseOKLine reads always, never or short.
func ParseOKLine(s string) (OKLine, error) {
	switch s {
	case "always":
		return OKAlways, nil
	case "never":
		return OKNever, nil
	case "short":
		return OKShort, nil
	}
	return 0, errors.New("use always, never (clients that do not expect the line) or short (at most 9 bytes, for systemd-ssh-proxy)")
}

// text is the line to send.
func (o OKLine) text(hostPort uint32) []byte {
	switch o {
	case OKNever:
		return nil
	case OKShort:
		hostPort &= 0xffff
	}
	return fmt.Appendf(nil, "OK %d\n", hostPort)
}

// parseConnect reads a line, newline included: CONNECT in any case, blanks, a
// decimal port.
func parseConnect(line []byte) (port uint32, ok bool) {
	words := bytes.Fields(line)
	if len(words) != 2 || !bytes.EqualFold(words[0], []byte("CONNECT")) {
		return 0, false
	}
	n, err := strconv.ParseUint(string(words[1]), 10, 32)
	if err != nil || n == unix.VMADDR_PORT_ANY {
		return 0, false
	}
	return uint32(n), true
}
