package agent

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"
)

// Client is the host's end of the line.
type Client struct {
	out    lineWriter
	hello  chan string
	closed chan struct{}

	mu      sync.Mutex
	next    int
	waiting map[int]chan answer
}

// ErrLost means that the line to the guest broke: the guest has ended.
var ErrLost = errors.New("the line to the guest is closed")

// NewClient starts reading the line.
func NewClient(line io.ReadWriter) *Client {
	c := &Client{out: lineWriter{w: line}, hello: make(chan string, 16), closed: make(chan struct{}), waiting: map[int]chan answer{}}
	go func() {
		_ = lines(line, c.deliver)
		close(c.closed)
	}()
	return c
}

func (c *Client) deliver(b []byte) {
	var a answer
	if json.Unmarshal(b, &a) != nil {
		return
	}
	if a.ID == 0 {
		select {
		case c.hello <- string(a.Output):
		default:
		}
		return
	}
	c.mu.Lock()
	ch := c.waiting[a.ID]
	delete(c.waiting, a.ID)
	c.mu.Unlock()
	if ch != nil {
		ch <- a
	}
}

// WaitHello waits until the guest's agent has started (again) and returns the guest's boot id.
func (c *Client) WaitHello(timeout time.Duration) (string, error) {
	select {
	case id := <-c.hello:
		return id, nil
	case <-c.closed:
		return "", ErrLost
	case <-time.After(timeout):
		return "", fmt.Errorf("no sign of life from the guest within %v", timeout)
	}
}

// Job is a command that runs in the guest.
type Job struct {
	c       *Client
	command string
	limit   time.Duration
	answer  chan answer
	id      int
}

// Start starts a shell command that the guest kills after limit.
func (c *Client) Start(command string, limit time.Duration) (*Job, error) {
	c.mu.Lock()
	c.next++
	j := &Job{c: c, command: command, limit: limit, answer: make(chan answer, 1), id: c.next}
	c.waiting[j.id] = j.answer
	c.mu.Unlock()
	seconds := max(1, int((limit+time.Second-1)/time.Second))
	if err := c.out.put(request{ID: j.id, Command: command, Seconds: seconds}); err != nil {
		return nil, fmt.Errorf("%w: %v", ErrLost, err)
	}
	return j, nil
}

// Wait waits for the end of the command; the error is about the line, not about the command.
func (j *Job) Wait() (output string, exit int, err error) {
	select {
	case a := <-j.answer:
		return string(a.Output), a.Exit, nil
	case <-j.c.closed:
		return "", -1, fmt.Errorf("%w (during %q)", ErrLost, j.command)
	case <-time.After(j.limit + 10*time.Second): // the guest's own limit comes first unless the guest hangs
		return "", -1, fmt.Errorf("the guest did not answer within %v (during %q)", j.limit+10*time.Second, j.command)
	}
}

// Run starts a command and waits for it.
func (c *Client) Run(command string, limit time.Duration) (string, int, error) {
	j, err := c.Start(command, limit)
	if err != nil {
		return "", -1, err
	}
	return j.Wait()
}
