package main

import (
	"errors"
	"net"
	"sync/atomic"
	"syscall"
	"time"

	"guestwire/test/harness/netns"

	"golang.org/x/net/ipv4"
	"golang.org/x/sys/unix"
)

// counter counts datagrams that arrive at a socket. It takes them in batches and lets the kernel join neighbours (UDP_GRO), so that it is not what is measured.
type counter struct {
	conn *net.UDPConn
	n    atomic.Int64
}

func newCounter(ns *netns.NS, port int) (*counter, error) {
	c := &counter{}
	err := ns.Do(func() (err error) {
		c.conn, err = net.ListenUDP("udp4", &net.UDPAddr{Port: port})
		return err
	})
	if err != nil {
		return nil, err
	}
	raw, err := c.conn.SyscallConn()
	if err != nil {
		return nil, err
	}
	var failed error
	err = raw.Control(func(fd uintptr) {
		failed = errors.Join(unix.SetsockoptInt(int(fd), unix.IPPROTO_UDP, unix.UDP_GRO, 1),
			unix.SetsockoptInt(int(fd), unix.SOL_SOCKET, unix.SO_RCVBUFFORCE, 16<<20))
	})
	if err = errors.Join(err, failed); err != nil {
		return nil, err
	}
	go c.read()
	return c, nil
}

func (c *counter) read() {
	p := ipv4.NewPacketConn(c.conn)
	batch := make([]ipv4.Message, 32)
	for i := range batch {
		batch[i] = ipv4.Message{Buffers: [][]byte{make([]byte, 65536)}, OOB: make([]byte, 64)}
	}
	for {
		k, err := p.ReadBatch(batch, 0)
		if errors.Is(err, net.ErrClosed) {
			return
		}
		var n int64
		for i := range max(k, 0) {
			n += datagrams(batch[i].N, batch[i].OOB[:batch[i].NN])
		}
		c.n.Add(n)
	}
}

// datagrams is how many were joined in one message: the kernel tells their size.
func datagrams(length int, oob []byte) int64 {
	msgs, err := syscall.ParseSocketControlMessage(oob)
	if err != nil {
		return 1
	}
	for _, m := range msgs {
		if m.Header.Level == unix.IPPROTO_UDP && m.Header.Type == unix.UDP_GRO && len(m.Data) >= 2 {
			if size := int(m.Data[0]) | int(m.Data[1])<<8; size > 0 {
				return int64((length + size - 1) / size)
			}
		}
	}
	return 1
}

// wait waits for the first datagrams.
func (c *counter) wait(timeout time.Duration) error {
	for end := time.Now().Add(timeout); time.Now().Before(end); time.Sleep(20 * time.Millisecond) {
		if c.n.Load() > 100 {
			return nil
		}
	}
	return errors.New("no datagrams arrive")
}

func (c *counter) close() { c.conn.Close() }
