package hostile

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/vring/vringtest"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/packet"
)

var vsockRows = []row{
	{"V1", vsockLengths},
	{"V2", vsockCIDs},
	{"V3", vsockUnknown},
	{"V4", vsockStrangers},
	{"V5", vsockRequests},
	{"V6", vsockBeyondCredit},
	{"V7", vsockCredit},
	{"V8", vsockNoCredit},
	{"V9", vsockShutdowns},
	{"V10", vsockFloods},
	{"V11", vsockNoBuffers},
	{"V12", vsockClients},
	{"V13", vsockPaths},
	{"V14", vsockEvents},
	{"V15", vsockPorts},
}

// vsockEstablished is a worker with a guest that has one connection to the host.
func vsockEstablished(t *testing.T) (*daemon, *vguest, *vconn, *vserver) {
	t.Helper()
	d := startVSock(t, nil)
	g := d.vsockGuest()
	s := d.vsockListen(1234)
	return d, g, g.connect(s, 1234), s
}

// vsockLengths: what is malformed ends its connection, and odd layouts of what
// is well formed do not matter.
func vsockLengths(t *testing.T) {
	for _, tt := range []struct {
		name  string
		len   uint32
		parts func(header []byte) [][]byte
		want  string // at the host, "" when the connection is reset
	}{
		{"longer than the chain", 11, func(h []byte) [][]byte { return [][]byte{h, make([]byte, 10)} }, ""},
		{"longer than 64 KiB", 65537, func(h []byte) [][]byte { return [][]byte{h, make([]byte, 65537)} }, ""},
		{"4 GiB", 1<<32 - 1, func(h []byte) [][]byte { return [][]byte{h} }, ""},
		{"header split", 5, func(h []byte) [][]byte { return [][]byte{h[:1], h[1:43], h[43:], []byte("he"), []byte("llo")} }, "hello"},
		{"header and payload in one", 5, func(h []byte) [][]byte { return [][]byte{append(h, "hello"...)} }, "hello"},
		{"trailing junk", 5, func(h []byte) [][]byte { return [][]byte{h, []byte("hellojunk"), []byte("junk")} }, "hello"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, g, c, s := vsockEstablished(t)
			h := c.header(packet.RW)
			h.Len = tt.len
			g.put(tt.parts(wire(h))...)
			if tt.want != "" {
				c.send("!")
				s.want(tt.want + "!")
			} else {
				c.wantReset()
				s.wantEnd()
				d.counts("vsock_drop_length", 1)
			}
			g.f.Close()
			d.vsockHealthy()
		})
	}
	t.Run("shorter than a header", func(t *testing.T) {
		d, g, c, s := vsockEstablished(t)
		g.put(make([]byte, packet.Size-1))
		d.counts("vsock_drop_short", 1)
		c.send("on")
		s.want("on")
	})
}

// vsockCIDs: a guest speaks for itself and to the host; the rest is dropped.
func vsockCIDs(t *testing.T) {
	d, g, c, s := vsockEstablished(t)
	n := uint64(0)
	for _, change := range []func(h *packet.Header){
		func(h *packet.Header) { h.SrcCID = vsockCID + 1 },
		func(h *packet.Header) { h.SrcCID |= 1 << 32 },
		func(h *packet.Header) { h.SrcCID = packet.HostCID },
		func(h *packet.Header) { h.DstCID |= 1 << 32 },
		func(h *packet.Header) { h.DstCID = 0 },
		func(h *packet.Header) { h.DstCID = 1 },
		func(h *packet.Header) { h.DstCID = vsockCID },
		func(h *packet.Header) { h.DstCID = vsockCID + 1 },
		func(h *packet.Header) { h.DstCID = packet.AnyCID },
		func(h *packet.Header) { h.DstCID = 1<<64 - 1 },
	} {
		for _, op := range []packet.Op{packet.RW, packet.Request, packet.Reset} {
			h := c.header(op)
			change(&h)
			if op == packet.RW {
				h.Len = 3
				g.put(wire(h), []byte("bad"))
			} else {
				g.put(wire(h))
			}
			n++
		}
	}
	d.counts("vsock_drop_cid", n)
	g.none("an answer to a packet with a wrong CID", func(p vpacket) bool { return p.DstPort == c.port })
	c.send("good")
	s.want("good")
	g.f.Close()
	d.vsockHealthy()
}

// vsockUnknown: operations and types that do not exist are refused; SEQPACKET
// too unless it was negotiated. Unknown flags mean nothing.
func vsockUnknown(t *testing.T) {
	d := startVSock(t, nil)
	g := d.vsockGuestWith(vsockFeatures&^vsockbridge.FSeqPacket, 2, ringSize)
	s := d.vsockListen(1234)
	for i, change := range []func(h *packet.Header){
		func(h *packet.Header) { h.Op = 0 },
		func(h *packet.Header) { h.Op = 8 },
		func(h *packet.Header) { h.Op = 0xffff },
		func(h *packet.Header) { h.Op, h.Type = packet.Request, 0 },
		func(h *packet.Header) { h.Op, h.Type = packet.Request, 3 },
		func(h *packet.Header) { h.Op, h.Type = packet.Request, packet.SeqPacket },
	} {
		h := header(packet.RW, uint32(2000+i), 1234)
		change(&h)
		g.put(wire(h))
		g.awaitOp(packet.Reset, uint32(2000+i))
	}
	c := g.connect(s, 1234)
	h := c.header(packet.RW)
	h.Flags, h.Len = ^uint32(0), 5
	g.put(wire(h), []byte("flags"))
	s.want("flags")
	h = c.header(packet.RW)
	h.Type, h.Len = packet.SeqPacket, 1
	g.put(wire(h), []byte("x"))
	c.wantReset()
	s.wantEnd()
	g.f.Close()
	d.vsockHealthy()
}

// vsockStrangers: a packet of no connection is answered with RST, once; an RST
// with nothing.
func vsockStrangers(t *testing.T) {
	d := startVSock(t, nil)
	g := d.vsockGuest()
	for i, op := range []packet.Op{packet.Response, packet.RW, packet.Shutdown, packet.CreditUpdate, packet.CreditRequest} {
		g.put(wire(header(op, uint32(3000+i), 77)))
		r := g.awaitOp(packet.Reset, uint32(3000+i))
		if r.SrcCID != packet.HostCID || r.DstCID != vsockCID || r.SrcPort != 77 || r.Len != 0 {
			t.Errorf("%v: RST %+v", op, r)
		}
	}
	for range 100 {
		g.put(wire(header(packet.Reset, 3100, 77)))
	}
	g.none("an answer to RST, or a second one", func(p vpacket) bool { return p.DstPort >= 3000 && p.DstPort <= 3100 })
	g.f.Close()
	d.vsockHealthy()
}

// vsockRequests: a REQUEST for a pair of ports that is connected ends it; data
// in a REQUEST is no data.
func vsockRequests(t *testing.T) {
	d, g, c, s := vsockEstablished(t)
	c.do(packet.Request, 0)
	c.wantReset()
	s.wantEnd()
	h := header(packet.Request, 1100, 1234)
	h.Len = 4
	g.put(wire(h), []byte("data"))
	g.awaitOp(packet.Response, 1100)
	s.accept()
	c = &vconn{g: g, port: 1100, host: 1234}
	c.send("more")
	s.want("more")
	g.f.Close()
	d.vsockHealthy()
}

// vsockBeyondCredit: a guest that sends more than it was given room for loses
// the connection, and the memory comes back.
func vsockBeyondCredit(t *testing.T) {
	const alloc = 64 << 10
	d := startVSock(t, func(o *config.VsockOptions) { o.TxBufferSize = alloc })
	g := d.vsockGuest()
	s := d.vsockListen(1234)
	c := g.connect(s, 1234) // whose host end never reads
	block := strings.Repeat("x", 16<<10)
	reset := func() bool {
		g.receive()
		for _, p := range g.seen {
			if p.Op == packet.Reset && p.DstPort == c.port {
				return true
			}
		}
		return false
	}
	sent := 0
	for ; sent < 16<<20 && !reset(); sent += len(block) {
		c.send(block)
	}
	if !reset() {
		c.wantReset()
	}
	t.Logf("reset behind %d bytes, of which the host's socket holds some", sent)
	d.counts("vsock_violations", 1)
	d.eventually("the memory to come back", func() bool {
		n := d.counters()
		return n["vsock_connections"] == 0 && n["vsock_staged_bytes"] == 0
	})
	g.f.Close()
	d.vsockHealthy()
}

// vsockCredit: counters that cannot be end the connection; those that are only
// odd do not.
func vsockCredit(t *testing.T) {
	for _, tt := range []struct {
		name       string
		alloc, fwd uint32
		reset      bool
	}{
		{"fwd_cnt ahead of what was sent", vsockAlloc, 6, true},
		{"fwd_cnt far ahead", vsockAlloc, 1 << 30, true},
		{"buf_alloc huge", 1<<32 - 1, 5, false},
		{"buf_alloc below what is in flight", 1, 0, false},
		{"buf_alloc nothing", 0, 0, false},
	} {
		t.Run(tt.name, func(t *testing.T) {
			d, g, c, s := vsockEstablished(t)
			_, err := io.WriteString(s.c, "hello")
			must(t, err)
			g.awaitOp(packet.RW, c.port)
			h := c.header(packet.CreditUpdate)
			h.BufAlloc, h.FwdCnt = tt.alloc, tt.fwd
			g.put(wire(h))
			if tt.reset {
				c.wantReset()
				s.wantEnd()
			} else { // and with room again it goes on
				c.fwd = 5
				c.do(packet.CreditUpdate, 0)
				_, err := io.WriteString(s.c, "again")
				must(t, err)
				c.want("again")
			}
			g.f.Close()
			d.vsockHealthy()
		})
	}
}

// vsockNoCredit: towards a guest that gives no room back goes what it has room
// for, and one request for more; what a guest asks for it gets.
func vsockNoCredit(t *testing.T) {
	d, g, c, s := vsockEstablished(t)
	go func() { _, _ = s.c.Write(make([]byte, 1<<20)) }()
	got := 0
	for got < vsockAlloc {
		got += len(g.awaitOp(packet.RW, c.port).data)
	}
	g.awaitOp(packet.CreditRequest, c.port)
	const questions = 500
	for range questions {
		c.do(packet.CreditRequest, 0)
		if p := g.awaitOp(packet.CreditUpdate, c.port); p.BufAlloc == 0 {
			t.Fatalf("credit update %+v", p)
		}
	}
	g.none("payload beyond the guest's room, or another request for more", func(p vpacket) bool {
		return p.DstPort == c.port && (p.Op == packet.RW || p.Op == packet.CreditRequest)
	})
	if got != vsockAlloc {
		t.Errorf("%d bytes were sent, the guest has room for %d", got, vsockAlloc)
	}
	c.fwd = uint32(got)
	c.do(packet.CreditUpdate, 0)
	c.want(string(make([]byte, 1<<20-vsockAlloc)))
	g.f.Close()
	d.vsockHealthy()
}

// vsockShutdowns: packets that say nothing do nothing; what was shut down stays
// so, and both halves together are the end.
func vsockShutdowns(t *testing.T) {
	d, g, c, s := vsockEstablished(t)
	c.send("")
	c.do(packet.Shutdown, 0)
	c.do(packet.Shutdown, ^packet.ShutdownBoth)
	c.send("still")
	s.want("still")
	for range 3 {
		c.do(packet.Shutdown, packet.ShutdownSend)
	}
	c.do(packet.Shutdown, 0) // undoes nothing
	if b, err := io.ReadAll(s.c); err != nil || len(b) != 0 {
		t.Errorf("the host got %q, %v; want the end of the stream", b, err)
	}
	_, err := io.WriteString(s.c, "the other half")
	must(t, err)
	c.want("the other half")
	c.do(packet.Shutdown, packet.ShutdownReceive)
	c.wantReset()
	c = g.connect(s, 1234)
	c.do(packet.Shutdown, packet.ShutdownSend)
	c.send("behind the end")
	c.wantReset()
	g.f.Close()
	d.vsockHealthy()
}

// vsockFloods: connections have a limit, and neither many of them nor tiny
// packets keep others from being served.
func vsockFloods(t *testing.T) {
	t.Run("connections", func(t *testing.T) {
		const most = 64
		d := startVSock(t, func(o *config.VsockOptions) { o.MaxConnections = most })
		g := d.vsockGuest()
		s := d.vsockListen(1234)
		for i := range 3 * most {
			g.put(wire(header(packet.Request, uint32(5000+i), 1234)))
		}
		accepted, refused := 0, 0
		for accepted+refused < 3*most {
			switch p := g.await("an answer", func(p vpacket) bool { return p.DstPort >= 5000 }); p.Op {
			case packet.Response:
				accepted++
			case packet.Reset:
				refused++
			}
		}
		if accepted != most || refused != 2*most {
			t.Errorf("%d accepted and %d refused, want %d and %d", accepted, refused, most, 2*most)
		}
		for i := range most {
			s.accept()
			g.put(wire(header(packet.Reset, uint32(5000+i), 1234)))
		}
		d.eventually("the connections to go", func() bool { return d.counters()["vsock_connections"] == 0 })
		g.f.Close()
		d.vsockHealthy()
	})
	t.Run("one-byte packets", func(t *testing.T) {
		d, g, c, s := vsockEstablished(t)
		text := strings.Repeat("abcdefghij", 500)
		for i := range len(text) {
			c.send(text[i : i+1])
		}
		s.want(text)
		g.f.Close()
		d.vsockHealthy()
	})
	t.Run("in turn", func(t *testing.T) {
		d, g, c, s := vsockEstablished(t)
		go func(c io.Writer) { _, _ = c.Write(make([]byte, 8<<20)) }(s.c)
		c2 := g.connectFrom(4321, s, 1234)
		_, err := io.WriteString(s.c, "small")
		must(t, err)
		for range 5 { // the first has far more to say
			c.want(strings.Repeat("\x00", 50000))
		}
		c2.want("small")
		if g.await("the first to go on", func(p vpacket) bool { return p.Op == packet.RW }).DstPort != c.port {
			t.Error("the first connection has ended")
		}
		g.f.Close()
		d.vsockHealthy()
	})
	t.Run("half-open clients", func(t *testing.T) {
		d, g, c, s := vsockEstablished(t)
		for i := range 150 { // more than may wait
			x := d.hybrid()
			_, _ = io.WriteString(x, []string{"", "CONNECT 5", "CONNECT 5\n"}[i%3])
		}
		c.send("on")
		s.want("on")
		g.f.Close()
	})
}

// vsockNoBuffers: without receive buffers nothing spins and nothing is lost; of
// refusals a bounded number waits.
func vsockNoBuffers(t *testing.T) {
	d := startVSock(t, nil)
	g := d.vsockGuest()
	g.starved = true
	s := d.vsockListen(1234)
	c := g.connect(s, 1234)
	const size = 1 << 20
	go func() { _, _ = s.c.Write(bytes.Repeat([]byte("b"), size)) }()
	for n := 1; n < ringSize; n++ { // the response took one
		p := g.awaitOp(packet.RW, c.port)
		c.got += p.data
		c.fwd += uint32(len(p.data))
	}
	c.send("the other way goes on")
	s.want("the other way goes on")
	turns := func() uint64 { return d.counters()["loop_turns"] }
	d.eventually("rest", func() bool { // looking takes a turn or two itself
		before := turns()
		time.Sleep(20 * time.Millisecond)
		return turns()-before < 10
	})
	const strangers = 1000
	for i := range strangers {
		g.put(wire(header(packet.RW, uint32(10000+i), 99)))
	}
	d.counts("vsock_resets_lost", 1)
	lost := d.counters()["vsock_resets_lost"]
	g.starved = false
	for range ringSize {
		g.drivers[0].Post(vsockRoom)
	}
	for range strangers - int(lost) {
		g.await("the resets that were kept", func(p vpacket) bool { return p.Op == packet.Reset && p.DstPort >= 10000 })
	}
	c.want(strings.Repeat("b", size))
	g.f.Close()
	d.vsockHealthy()
}

// vsockClients: what host processes do wrong at the hybrid protocol's socket.
func vsockClients(t *testing.T) {
	for _, line := range []string{"\n", "HELLO\n", "CONNECT\n", "CONNECT \n", "CONNECT x\n", "CONNECT -1\n", "CONNECT 4294967296\n", "CONNECT 1 2\n",
		"CONNECT 1" + strings.Repeat("0", 100), strings.Repeat("A", 4096), "\x00\x01\x02\x03\n"} {
		d := startVSock(t, nil)
		g := d.vsockGuest()
		c := d.hybrid()
		_, err := io.WriteString(c, line)
		must(t, err)
		wantClosed(t, fmt.Sprintf("line %.40q", line), c)
		g.none("a request for a line that is none", func(p vpacket) bool { return p.Op == packet.Request })
	}
	t.Run("slow", func(t *testing.T) {
		d := startVSock(t, nil)
		g := d.vsockGuest()
		c := d.hybrid()
		_, err := io.WriteString(c, "CONNECT 10")
		must(t, err)
		d.counts("vsock_host_pending", 1)
		d.pass(3*time.Second, 500*time.Millisecond)
		wantClosed(t, "half a line", c)
		g.none("a request for half a line", func(p vpacket) bool { return p.Op == packet.Request })
	})
	t.Run("refused", func(t *testing.T) {
		d := startVSock(t, nil)
		g := d.vsockGuest()
		c := d.hybrid()
		_, err := io.WriteString(c, "CONNECT 10\n")
		must(t, err)
		r := g.await("a request", func(p vpacket) bool { return p.Op == packet.Request && p.DstPort == 10 })
		g.put(wire(header(packet.Reset, 10, r.SrcPort)))
		wantClosed(t, "a refused client", c)
	})
	t.Run("closes mid-stream and never reads", func(t *testing.T) {
		d := startVSock(t, nil)
		g := d.vsockGuest()
		c := d.hybrid()
		_, err := io.WriteString(c, "CONNECT 10\npipelined")
		must(t, err)
		r := g.await("a request", func(p vpacket) bool { return p.Op == packet.Request && p.DstPort == 10 })
		v := &vconn{g: g, port: 10, host: r.SrcPort}
		v.do(packet.Response, 0)
		v.want("pipelined")
		room := 0 // what the guest may send while nobody reads has an end
		for block := strings.Repeat("y", 32<<10); room < 8<<20 && d.counters()["vsock_staged"] == 0; room += len(block) {
			v.send(block)
		}
		d.counts("vsock_staged", 1)
		if n := d.counters()["vsock_staged_bytes"]; n > 1<<20 {
			t.Errorf("%d bytes are kept for a client that does not read", n)
		}
		c.Close()
		v.g.await("the end", func(p vpacket) bool { return p.DstPort == 10 && (p.Op == packet.Reset || p.Op == packet.Shutdown) })
		v.do(packet.Reset, 0)
		d.eventually("the memory to come back", func() bool {
			n := d.counters()
			return n["vsock_connections"] == 0 && n["vsock_staged_bytes"] == 0
		})
		g.f.Close()
		d.vsockHealthy()
	})
}

// vsockPaths: the guest's port leads to a socket at its very path, or nowhere.
func vsockPaths(t *testing.T) {
	d := startVSock(t, nil)
	g := d.vsockGuest()
	real := d.vsockListen(1)
	path := func(port int) string { return fmt.Sprintf("%s_%d", d.uds(), port) }
	must(t, os.Symlink(path(1), path(10)))
	must(t, os.Symlink("/nonexistent", path(11)))
	must(t, os.Mkdir(path(12), 0o755))
	must(t, os.WriteFile(path(13), []byte("keep me"), 0o644))
	must(t, unix.Mkfifo(path(14), 0o600))
	stale := d.vsockListen(15)
	stale.l.SetUnlinkOnClose(false)
	stale.l.Close()
	fd, err := unix.Socket(unix.AF_UNIX, unix.SOCK_DGRAM|unix.SOCK_CLOEXEC, 0)
	must(t, err)
	defer unix.Close(fd)
	must(t, unix.Bind(fd, &unix.SockaddrUnix{Name: path(17)}))
	for _, port := range []uint32{10, 11, 12, 13, 14, 15, 16, 17, 0, 1<<32 - 1} {
		g.put(wire(header(packet.Request, 2000, port)))
		g.awaitOp(packet.Reset, 2000)
	}
	if b, err := os.ReadFile(path(13)); err != nil || string(b) != "keep me" {
		t.Errorf("a file was touched: %q, %v", b, err)
	}
	if _, err := os.Lstat(path(15)); err != nil {
		t.Errorf("a socket that is not ours was removed: %v", err)
	}
	c := g.connectFrom(2001, real, 1)
	// The path is replaced: those who come later meet what is there then.
	must(t, os.Rename(path(1), path(2)))
	g.put(wire(header(packet.Request, 2002, 1)))
	g.awaitOp(packet.Reset, 2002)
	c.send("on")
	real.want("on")
	g.f.Close()
	d.vsockHealthy()
}

// vsockEvents: a guest that outlives its device is told of it (TRANSPORT_RESET),
// once it has a buffer for the news; one that has none, or odd ones, is served
// all the same.
func vsockEvents(t *testing.T) {
	d := startVSock(t, nil)
	g := d.vsockGuestWith(vsockFeatures, 3, ringSize)
	s := d.vsockListen(1234)
	c := g.connect(s, 1234)
	c.send("without an event buffer")
	s.want("without an event buffer")
	g.drivers[2].Post(1)               // too small for an event
	g.drivers[2].Send(make([]byte, 4)) // readable: no buffer at all
	g.none("an event without a cause", func(vpacket) bool { return len(g.drivers[2].Reap()) > 0 })
	g.f.Close()
	// Another device takes the rings over as they are.
	g.d = startVSock(t, nil)
	g.meet(vsockFeatures)
	for i := range g.drivers {
		g.startRing(i)
	}
	s = g.d.vsockListen(1234)
	c.send("of a connection that the device does not know")
	c.wantReset()
	c = g.connectFrom(2000, s, 1234) // whether it has a buffer for the event or not
	var events []vringtest.Used
	g.drivers[2].Post(4)
	g.d.eventually("the event", func() bool {
		for _, u := range g.drivers[2].Reap() {
			if u.Written > 0 {
				events = append(events, u)
			}
		}
		return len(events) > 0
	})
	if want := make([]byte, 4); len(events) != 1 || !bytes.Equal(events[0].Data, want) { // le32 id 0: VIRTIO_VSOCK_EVENT_TRANSPORT_RESET
		t.Errorf("events %v, want one of % x", events, want)
	}
	g.drivers[2].Post(4)
	c.send("on")
	s.want("on")
	if more := g.drivers[2].Reap(); len(more) > 0 {
		t.Errorf("the event came again: %v", more)
	}
	g.f.Close()
	d.vsockHealthy()
	g.d.vsockHealthy()
}

// vsockPorts: the ports of the host's end are all different, whoever comes and
// goes, and when there are no more connections to be had a client is refused.
func vsockPorts(t *testing.T) {
	const most = 32
	d := startVSock(t, func(o *config.VsockOptions) { o.MaxConnections = most })
	g := d.vsockGuest()
	live := map[uint32]io.Closer{}
	for range 20 * most {
		c := d.hybrid()
		_, err := io.WriteString(c, "CONNECT 10\n")
		must(t, err)
		if len(live) == most {
			wantClosed(t, "one client too many", c)
			for port, c := range live { // one in two goes
				if port%2 == 0 || len(live) == most {
					g.put(wire(header(packet.Reset, 10, port)))
					c.Close()
					delete(live, port)
				}
			}
			d.eventually("the connections to go", func() bool { return d.counters()["vsock_connections"] == uint64(len(live)) })
			continue
		}
		r := g.await("a request", func(p vpacket) bool { return p.Op == packet.Request && p.DstPort == 10 })
		if live[r.SrcPort] != nil {
			t.Fatalf("port %d is given to two connections", r.SrcPort)
		}
		live[r.SrcPort] = c
		v := &vconn{g: g, port: 10, host: r.SrcPort}
		v.do(packet.Response, 0)
		want := fmt.Sprintf("OK %d\n", r.SrcPort)
		b := make([]byte, len(want))
		if _, err := io.ReadFull(c, b); err != nil || string(b) != want {
			t.Fatalf("the client got %q, %v; want %q", b, err, want)
		}
	}
	for _, c := range live {
		c.Close()
	}
	g.f.Close()
	d.vsockHealthy()
}
