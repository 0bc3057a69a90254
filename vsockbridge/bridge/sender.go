package bridge

import (
	"runtime"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vsockbridge/relay"
)

// lingerTime is how long the last messages may take after the connection's other
// direction has ended. Linux' own time-out for closing vsock sockets.
const lingerTime = 8 * time.Second

// messageMax is the longest message that is sent; a longer one ends the connection.
const messageMax = 1 << 20

// wholeMessages makes an End of a seqpacket AF_VSOCK socket. Linux sends a message
// that exceeds the peer's credit in parts, and a send that may not wait, or that a
// signal interrupts, returns an error after some of them: what is sent again is
// then there twice. So a thread of its own, with every signal blocked, takes the
// messages from the relay through a socket pair and sends them, waiting as long as
// it takes. fd belongs to the End, even when there is an error.
func wholeMessages(fd int) (opened, error) {
	pair, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_SEQPACKET|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		unix.Close(fd)
		return opened{}, err
	}
	own, err := unix.FcntlInt(uintptr(fd), unix.F_DUPFD_CLOEXEC, 0)
	if err != nil {
		for _, x := range []int{fd, pair[0], pair[1]} {
			unix.Close(x)
		}
		return opened{}, err
	}
	_ = unix.SetNonblock(pair[0], true)
	_ = unix.SetNonblock(fd, false) // the relay does not wait on a message socket in any case
	sent := make(chan struct{})
	go func() {
		sendWhole(own, pair[1])
		close(sent)
	}()
	done := func() {
		select {
		case <-sent:
		case <-time.After(lingerTime):
			_ = unix.Shutdown(own, unix.SHUT_RDWR) // which ends its wait
			<-sent
		}
		unix.Close(own)
	}
	return opened{End: relay.End{In: fd, Out: pair[0], Kind: relay.Seqpacket}, done: done}, nil
}

// sendWhole sends what comes from queue to fd until either ends, and closes queue.
// The thread dies with the goroutine, as its signal mask must not be inherited.
func sendWhole(fd, queue int) {
	runtime.LockOSThread()
	defer unix.Close(queue)
	var every unix.Sigset_t
	for i := range every.Val {
		every.Val[i] = ^every.Val[i]
	}
	_ = unix.PthreadSigmask(unix.SIG_BLOCK, &every, nil)
	buf := make([]byte, messageMax)
	for {
		n, _, err := unix.Recvfrom(queue, buf, unix.MSG_TRUNC)
		switch {
		case err != nil || n > len(buf):
			return
		case n == 0 && relay.Ended(queue):
			_ = unix.Shutdown(fd, unix.SHUT_WR)
			return
		}
		if err := unix.Sendto(fd, buf[:n], unix.MSG_NOSIGNAL, nil); err != nil {
			return
		}
	}
}
