package relay

import "golang.org/x/sys/unix"

// keep is how many idle pipes, and buffers, wait for the next that needs one.
const keep = 16

// pipe is what spliced bytes pass through.
type pipe struct{ r, w int }

var noPipe = pipe{-1, -1}

// pool lends pipes and buffers for as long as bytes are in them.
type pool struct {
	pipes    []pipe
	buffers  [][]byte
	pipeSize int
	bufSize  int
}

// takePipe returns an empty pipe. A host that does not let us make it larger
// (pipe-user-pages-soft) leaves it at its size: splice then moves less at a time.
func (p *pool) takePipe() (pipe, unix.Errno) {
	if n := len(p.pipes); n > 0 {
		x := p.pipes[n-1]
		p.pipes = p.pipes[:n-1]
		return x, 0
	}
	var fds [2]int
	if err := unix.Pipe2(fds[:], unix.O_CLOEXEC|unix.O_NONBLOCK); err != nil {
		return noPipe, err.(unix.Errno)
	}
	_, _ = unix.FcntlInt(uintptr(fds[1]), unix.F_SETPIPE_SZ, p.pipeSize)
	return pipe{fds[0], fds[1]}, 0
}

// givePipe takes back a pipe that held bytes are left in, or none.
func (p *pool) givePipe(x pipe, held int) {
	switch {
	case x.r < 0:
	case held > 0 || len(p.pipes) == cap(p.pipes):
		unix.Close(x.r)
		unix.Close(x.w)
	default:
		p.pipes = append(p.pipes, x)
	}
}

func (p *pool) takeBuffer() []byte {
	if n := len(p.buffers); n > 0 {
		b := p.buffers[n-1]
		p.buffers = p.buffers[:n-1]
		return b
	}
	return make([]byte, p.bufSize)
}

func (p *pool) giveBuffer(b []byte) {
	if b != nil && len(p.buffers) < cap(p.buffers) {
		p.buffers = append(p.buffers, b)
	}
}

func (p *pool) close() {
	for _, x := range p.pipes {
		unix.Close(x.r)
		unix.Close(x.w)
	}
	p.pipes, p.buffers = nil, nil
}
