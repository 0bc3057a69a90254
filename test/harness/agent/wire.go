package agent

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"sync"
)

const mark = "gw1 "

// request asks the guest to run a shell command.
type request struct {
	ID      int    `json:"id"`
	Command string `json:"command"`
	Seconds int    `json:"seconds"` // then the command is killed
}

// answer is the end of a command, or a hello (ID 0) with the guest's boot id in Output.
type answer struct {
	ID     int    `json:"id"`
	Output []byte `json:"output"`
	Exit   int    `json:"exit"` // 128+n: signal n; 124: killed at its time limit; 127: could not be started
}

type lineWriter struct {
	mu sync.Mutex
	w  io.Writer
}

func (l *lineWriter) put(v any) error {
	b, err := json.Marshal(v)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	_, err = fmt.Fprintf(l.w, "\n%s%s\n", mark, b) // the leading newline ends whatever noise stood on the line
	return err
}

// lines calls f for the JSON of every marked line until reading fails.
func lines(r io.Reader, f func([]byte)) error {
	s := bufio.NewScanner(r)
	s.Buffer(make([]byte, 64<<10), 64<<20)
	for s.Scan() {
		if b, ok := bytes.CutPrefix(bytes.TrimRight(s.Bytes(), "\r"), []byte(mark)); ok {
			f(b)
		}
	}
	if err := s.Err(); err != nil {
		return err
	}
	return io.EOF
}
