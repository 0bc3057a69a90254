package traffic

import (
	"bytes"
	"io"
	"net"
	"testing"
	"testing/iotest"
	"time"
)

func loopback(t *testing.T) (Dialer, net.Conn) {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	u, err := net.ListenUDP("udp", &net.UDPAddr{IP: net.IPv4(127, 0, 0, 1)})
	if err != nil {
		t.Fatal(err)
	}
	s := NewServer()
	go s.Serve(l)
	go s.ServeUDP(u)
	c, err := net.Dial("udp", u.LocalAddr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close(); u.Close(); c.Close() })
	return func() (net.Conn, error) { return net.Dial("tcp", l.Addr().String()) }, c
}

// The checks hold over plain loopback; what they find over a device is then the device's.
func TestConversationOverLoopback(t *testing.T) {
	d, u := loopback(t)
	const limit = 10 * time.Second
	for name, f := range map[string]func() error{
		"get":      func() error { return Get(d, 1<<20+3, 7, limit) },
		"put":      func() error { return Put(d, 1<<20+3, 8, limit) },
		"get 1 B":  func() error { return GetIn(d, 1000, 7, 1, limit) },
		"put 1 B":  func() error { return PutIn(d, 1000, 7, 1, limit) },
		"blast":    func() error { _, err := Blast(d, 1<<20+3, 4096, limit); return err },
		"drain":    func() error { _, err := Drain(d, 1<<20+3, 4096, limit); return err },
		"churn":    func() error { _, err := Churn(d, 10, limit); return err },
		"half":     func() error { return Half(d, 100001, 9, "k1", limit) },
		"rst in":   func() error { return ResetByServer(d, limit) },
		"rst out":  func() error { return ResetByClient(d, "k2", limit) },
		"parallel": func() error { return Parallel(d, 50, 4096, limit) },
		"udp":      func() error { return EchoSizes(u, UDPSizes) },
	} {
		if err := f(); err != nil {
			t.Errorf("%s: %v", name, err)
		}
	}
	if got, err := AskUDP(u, "peer"); err != nil || got != u.LocalAddr().String() {
		t.Errorf("peer: %q, %v", got, err)
	}
	closed := func() (net.Conn, error) { return net.Dial("tcp", "127.0.0.1:1") }
	if err := Refused(closed); err != nil {
		t.Error(err)
	}
	if err := Refused(d); err == nil {
		t.Error("an open port counts as refusing")
	}
}

// A stream's bytes do not depend on how they are read.
func TestStreamIsIndependentOfReads(t *testing.T) {
	whole, err := io.ReadAll(NewStream(5, 10007))
	if err != nil {
		t.Fatal(err)
	}
	single, _ := io.ReadAll(iotest.OneByteReader(NewStream(5, 10007)))
	if !bytes.Equal(whole, single) {
		t.Error("bytewise reading gives other bytes")
	}
	if other, _ := io.ReadAll(NewStream(6, 10007)); bytes.Equal(whole, other) {
		t.Error("two seeds give one stream")
	}
	if SumOf(5, 10) == SumOf(5, 11) {
		t.Error("the sum does not tell lengths apart")
	}
}
