package supervisor

import (
	"bufio"
	"errors"
	"io"
	"os"
	"os/exec"
	"syscall"
)

// maxReady bounds the line by which a worker says that it is ready, in bytes.
const maxReady = 4 << 10

// process is a worker that has been started.
type process struct {
	cmd   *exec.Cmd
	input io.Closer     // our end of its standard input
	ready chan string   // its one line, if it comes
	ended chan struct{} // closed when it has ended and err is set
	err   error
}

// start runs command and hands it input.
func start(command []string, input []byte) (*process, error) {
	p := &process{ready: make(chan string, 1), ended: make(chan struct{})}
	p.cmd = &exec.Cmd{
		Path: command[0], Args: command[1:], Stderr: os.Stderr,
		SysProcAttr: &syscall.SysProcAttr{Setpgid: true},
	}
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		in.Close()
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	p.input = in
	go func() {
		_, _ = in.Write(append(input[:len(input):len(input)], '\n')) // a worker that does not read it will not get ready
	}()
	go p.watch(out)
	return p, nil
}

// watch reads what the worker prints and, when that ends, waits for the worker.
func (p *process) watch(out io.Reader) {
	r := bufio.NewReaderSize(out, maxReady)
	if line, _, err := r.ReadLine(); err == nil {
		p.ready <- string(line)
	}
	_, _ = io.Copy(io.Discard, r)
	p.err = p.cmd.Wait()
	close(p.ended)
}

func (p *process) signal(s os.Signal) { _ = p.cmd.Process.Signal(s) } // one that has ended needs none

// reason says why a worker has ended: even one that ended well was not asked to.
func (p *process) reason() error {
	if p.err == nil {
		return errors.New("without being asked to")
	}
	return p.err
}
