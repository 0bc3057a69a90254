//go:build guest

package hostile

import (
	"io"
	"net"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/test/harness/vsock"
	"guestwire/vsockbridge/packet"
)

// TestKernelVSock is about the vsock of the kernel that a worker runs on, so it runs in a guest (test/e2e builds it with the tag guest and takes it there): a
// fake guest on the one side, programs at the kernel's loopback on the other.
func TestKernelVSock(t *testing.T) {
	l, err := vsock.Listen(6999, unix.SOCK_STREAM) // Go's poller opens its descriptors now, before they are counted
	must(t, err)
	l.Close()
	d := startVSock(t, func(o *config.VsockOptions) {
		o.UDSPath, o.ForwardCID, o.ForwardListen = "", 1, "9001+9002"
		o.Listen, o.Connect = []string{"vsock:9003=vsock:700"}, []string{"vsock:1234=vsock:1:5000"}
	})
	g := d.vsockGuest()
	for _, c := range []struct {
		name            string
		asked, listened uint32
	}{{"every port of --forward-cid", 6000, 6000}, {"a port that a rule leads elsewhere", 1234, 5000}} {
		t.Run(c.name, func(t *testing.T) {
			l, err := vsock.Listen(c.listened, unix.SOCK_STREAM)
			must(t, err)
			defer l.Close()
			g.put(wire(header(packet.Request, 1000+c.asked, c.asked)))
			g.awaitOp(packet.Response, 1000+c.asked)
			k, err := l.Accept()
			must(t, err)
			kernelConversation(t, &vconn{g: g, port: 1000 + c.asked, host: c.asked}, k)
		})
	}
	t.Run("nobody there", func(t *testing.T) {
		g.put(wire(header(packet.Request, 1001, 6001)))
		g.awaitOp(packet.Reset, 1001)
	})
	for _, c := range []struct {
		name         string
		dialed, port uint32
	}{{"first of --forward-listen", 9001, 9001}, {"second of --forward-listen", 9002, 9002}, {"a rule to another port", 9003, 700}} {
		t.Run(c.name, func(t *testing.T) {
			k, err := vsock.Dial(vsock.Addr{CID: 1, Port: c.dialed}, unix.SOCK_STREAM, 0)
			must(t, err)
			p := g.awaitOp(packet.Request, c.port)
			g.put(wire(header(packet.Response, c.port, p.SrcPort)))
			kernelConversation(t, &vconn{g: g, port: c.port, host: p.SrcPort}, k)
		})
	}
}

// kernelConversation is a word each way, an end each way, and more than any buffer holds.
func kernelConversation(t *testing.T, c *vconn, k net.Conn) {
	t.Helper()
	defer k.Close()
	if f, ok := k.(interface{ SetDeadline(time.Time) error }); ok {
		_ = f.SetDeadline(time.Now().Add(20 * time.Second))
	}
	c.send("hello")
	b := make([]byte, 5)
	if _, err := io.ReadFull(k, b); err != nil || string(b) != "hello" {
		t.Fatalf("the program got %q, %v", b, err)
	}
	big := make([]byte, 600_000)
	for i := range big {
		big[i] = byte(i * 7)
	}
	go func() { _, _ = k.Write(big); _ = k.(*vsock.Conn).CloseWrite() }()
	c.want(string(big))
	c.g.await("the end of what the program sends", func(p vpacket) bool { return p.Op == packet.Shutdown && p.DstPort == c.port })
	c.send("bye")
	c.do(packet.Shutdown, packet.ShutdownReceive|packet.ShutdownSend)
	rest, err := io.ReadAll(k)
	if err != nil || string(rest) != "bye" {
		t.Errorf("the program got %q, %v at the end", rest, err)
	}
}
