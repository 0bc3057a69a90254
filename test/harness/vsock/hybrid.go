package vsock

import (
	"fmt"
	"net"
	"time"
)

// DialGuest connects to a port of the guest behind the UNIX socket at path, by the hybrid protocol: CONNECT PORT, and OK with the port that the host's end
// has got. It reads exactly that line. A guest where nobody listens closes the connection without a word: io.EOF.
func DialGuest(path string, port uint32, timeout time.Duration) (*net.UnixConn, uint32, error) {
	c, err := net.DialUnix("unix", nil, &net.UnixAddr{Name: path, Net: "unix"})
	if err != nil {
		return nil, 0, err
	}
	_ = c.SetDeadline(time.Now().Add(timeout))
	_, err = fmt.Fprintf(c, "CONNECT %d\n", port)
	var hostPort uint32
	if err == nil {
		hostPort, err = ReadOK(c)
	}
	if err != nil {
		c.Close()
		return nil, 0, err
	}
	return c, hostPort, c.SetDeadline(time.Time{})
}

// ReadOK reads the answer to CONNECT, byte by byte: what follows the newline belongs to the stream.
func ReadOK(c net.Conn) (hostPort uint32, err error) {
	var line []byte
	for b := make([]byte, 1); ; {
		if _, err := c.Read(b); err != nil {
			return 0, err
		}
		if b[0] == '\n' {
			break
		}
		if line = append(line, b[0]); len(line) > 32 {
			return 0, fmt.Errorf("the answer to CONNECT is not a line: %q", line)
		}
	}
	if n, _ := fmt.Sscanf(string(line), "OK %d", &hostPort); n != 1 {
		return 0, fmt.Errorf("the answer to CONNECT is %q", line)
	}
	return hostPort, nil
}
