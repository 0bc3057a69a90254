package guest

import (
	"encoding/json"
	"errors"
	"fmt"
	"net"
	"sync"
	"time"
)

// QMP is a client of QEMU's machine protocol, as far as the tests need it: one command at a time; events are kept for those who wait for them.
type QMP struct {
	conn   net.Conn
	reply  chan qmpMessage
	events chan string
	mu     sync.Mutex
}

type qmpMessage struct {
	Return json.RawMessage `json:"return"`
	Error  *struct {
		Class string `json:"class"`
		Desc  string `json:"desc"`
	} `json:"error"`
	Event string          `json:"event"`
	QMP   json.RawMessage `json:"QMP"`
}

// DialQMP connects to the monitor's socket and leaves the greeting state.
func DialQMP(path string, timeout time.Duration) (*QMP, error) {
	conn, err := dialUnix(path, timeout)
	if err != nil {
		return nil, err
	}
	q := &QMP{conn: conn, reply: make(chan qmpMessage, 1), events: make(chan string, 256)}
	go q.read()
	if _, err := q.Do("qmp_capabilities", nil); err != nil {
		conn.Close()
		return nil, err
	}
	return q, nil
}

func dialUnix(path string, timeout time.Duration) (net.Conn, error) {
	end := time.Now().Add(timeout)
	for {
		conn, err := net.Dial("unix", path)
		if err == nil || time.Now().After(end) {
			return conn, err
		}
		time.Sleep(10 * time.Millisecond)
	}
}

func (q *QMP) read() {
	d := json.NewDecoder(q.conn)
	for {
		var m qmpMessage
		if err := d.Decode(&m); err != nil {
			close(q.reply)
			return
		}
		switch {
		case m.Event != "":
			select {
			case q.events <- m.Event:
			default:
			}
		case m.QMP == nil:
			q.reply <- m
		}
	}
}

// Do runs one command.
func (q *QMP) Do(command string, arguments any) (json.RawMessage, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	b, err := json.Marshal(struct {
		Execute   string `json:"execute"`
		Arguments any    `json:"arguments,omitempty"`
	}{command, arguments})
	if err != nil {
		return nil, err
	}
	if _, err := q.conn.Write(b); err != nil {
		return nil, err
	}
	select {
	case m, ok := <-q.reply:
		switch {
		case !ok:
			return nil, errors.New("QEMU closed its monitor")
		case m.Error != nil:
			return nil, fmt.Errorf("%s: %s: %s", command, m.Error.Class, m.Error.Desc)
		}
		return m.Return, nil
	case <-time.After(20 * time.Second):
		return nil, fmt.Errorf("%s: no answer from QEMU", command)
	}
}

// HMP runs a command of the human monitor and returns its text.
func (q *QMP) HMP(line string) (string, error) {
	r, err := q.Do("human-monitor-command", map[string]string{"command-line": line})
	if err != nil {
		return "", err
	}
	var s string
	return s, json.Unmarshal(r, &s)
}

// WaitEvent waits for an event by name; others are passed over.
func (q *QMP) WaitEvent(name string, timeout time.Duration) error {
	limit := time.After(timeout)
	for {
		select {
		case e := <-q.events:
			if e == name {
				return nil
			}
		case <-limit:
			return fmt.Errorf("no event %s within %v", name, timeout)
		}
	}
}

// Close ends the connection; QEMU goes on.
func (q *QMP) Close() { q.conn.Close() }
