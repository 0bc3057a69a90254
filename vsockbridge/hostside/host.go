package hostside

import (
	"fmt"
	"net/netip"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/unixsock"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/packet"
)

// Config says what a guest meets on the host. Sockets are opened for nothing
// else: without a vsock: rule or ForwardCID none of the host kernel's vsock.
type Config struct {
	CID     uint64 // the guest's, for the log
	UDSPath string // of the hybrid protocol; "": none
	OKLine  OKLine
	Wait    time.Duration // at UDSPath: how long to try again while the guest refuses
	File    File          // of the sockets at UDSPath
	Listen  []Rule        // of ParseListen
	Connect []Rule        // of ParseConnect
	// ForwardCID of the host kernel's vsock takes the guest's connections that no
	// rule leads elsewhere, to the same port; 0: UDSPath_N does.
	ForwardCID uint32

	// Lookup resolves the names in rules, in New only; nil: names are refused.
	Lookup func(name string) (netip.Addr, error)
	// Log takes one line per event worth an administrator's attention; nil: no log.
	Log func(format string, a ...any)
}

// Connector is what a Host needs of the guest's device.
type Connector interface {
	Connect(port uint32, t packet.Type, in vsockbridge.Initiator, cookie uint32) (hostPort uint32, errno unix.Errno)
	Cancel(hostPort uint32)
}

// Host is the host as one guest sees it, and the guest as the host's processes
// see it.
type Host struct {
	c         Config
	loop      *eventloop.Loop
	device    Connector // nil until Attach
	listeners []*listener
	clients   []*client // by cookie; nil: free
	free      []uint32  // cookies
	reserve   int       // descriptor to give up for turning clients away; -1: none
	stats     Stats
}

// Stats are counters.
type Stats struct {
	Clients    uint64 // accepted
	Connected  uint64 // handed over, the guest having accepted
	Refused    uint64 // closed, the guest having refused or not being there
	Retries    uint64 // attempts after the first
	LeftEarly  uint64 // gone before the guest had answered
	BadLines   uint64 // no CONNECT line: another text, too long, cut off
	SlowLines  uint64 // no complete line in time
	Pauses     uint64 // times that a listener rested, out of descriptors or memory
	TurnedAway uint64 // closed at once for want of descriptors
	Dials      uint64 // the guest's requests that found a socket
	DialErrors uint64 // those that did not
}

var (
	_ vsockbridge.Host      = (*Host)(nil)
	_ vsockbridge.Initiator = (*Host)(nil)
)

// suffixSeqpacket ends the path where clients with messages connect.
const suffixSeqpacket = "_seqpacket"

// New opens all listening sockets and registers them on loop. Until Attach the
// guest counts as one that is not there.
func New(c Config, loop *eventloop.Loop) (*Host, error) {
	h := &Host{c: c, loop: loop, reserve: -1}
	if err := h.open(); err != nil {
		h.Close()
		return nil, err
	}
	return h, nil
}

func (h *Host) open() error {
	if err := h.resolve(); err != nil {
		return err
	}
	if err := h.check(); err != nil {
		return err
	}
	h.refill()
	if p := h.c.UDSPath; p != "" {
		for _, l := range []listener{
			{where: Address{Network: Unix, Path: p}, typ: packet.Stream},
			{where: Address{Network: Unix, Path: p + suffixSeqpacket}, typ: packet.SeqPacket},
		} {
			l.hybrid, l.wait, l.file = true, h.c.Wait, h.c.File
			if err := h.listen(&l); err != nil {
				return err
			}
		}
	}
	for _, r := range h.c.Listen {
		if err := h.listen(&listener{where: r.Host, port: r.Port, typ: r.Type, wait: r.Wait, file: r.File}); err != nil {
			return err
		}
	}
	return nil
}

// resolve replaces the names in rules, which stay the caller's.
func (h *Host) resolve() error {
	for _, rules := range []*[]Rule{&h.c.Listen, &h.c.Connect} {
		own := append([]Rule(nil), *rules...)
		for i := range own {
			a := &own[i].Host
			if err := a.resolve(h.c.Lookup); err != nil {
				return fmt.Errorf("%v: %w", *a, err)
			}
		}
		*rules = own
	}
	return nil
}

// check finds rules that stand in each other's way, and paths without room for
// what will be added to them.
func (h *Host) check() error {
	if most := unixsock.MaxPath - len("_4294967295"); len(h.c.UDSPath) > most {
		return fmt.Errorf("socket path is %d bytes long, at most %d leave room for _PORT behind it: %s", len(h.c.UDSPath), most, h.c.UDSPath)
	}
	bound := map[Address]bool{
		{Network: Unix, Path: h.c.UDSPath}:                   true,
		{Network: Unix, Path: h.c.UDSPath + suffixSeqpacket}: true,
	}
	for _, r := range h.c.Listen {
		if bound[r.Host] && !(r.Host.Network == TCP && r.Host.TCP.Port() == 0) {
			return fmt.Errorf("%v is to be listened on twice: each address leads to one port", r.Host)
		}
		bound[r.Host] = true
	}
	type from struct {
		port uint32
		typ  packet.Type
	}
	taken := make(map[from]Address)
	for _, r := range h.c.Connect {
		k := from{r.Port, r.Type}
		if other, ok := taken[k]; ok {
			return fmt.Errorf("two rules connect the guest's port %d (%v): to %v and to %v", r.Port, r.Type, other, r.Host)
		}
		taken[k] = r.Host
	}
	return nil
}

// Attach says whose ports the clients want. It comes once, before or behind the
// first of them.
func (h *Host) Attach(d Connector) { h.device = d }

// Listening describes the listening sockets, for the ready line.
func (h *Host) Listening() []string {
	var list []string
	for _, l := range h.listeners {
		to := "the port they CONNECT to"
		if !l.hybrid {
			to = fmt.Sprintf("port %d", l.port)
		}
		list = append(list, fmt.Sprintf("%v (%v) -> %s", l.where, l.typ, to))
	}
	return list
}

// Close turns all clients away that have not been handed over, and removes the
// socket files that New made. The device must still be there, or be closed and
// take a Cancel.
func (h *Host) Close() {
	for _, c := range h.clients {
		if c != nil {
			c.leave()
		}
	}
	for _, l := range h.listeners {
		l.close()
	}
	h.listeners = nil
	if h.reserve >= 0 {
		unix.Close(h.reserve)
		h.reserve = -1
	}
}

// Stats returns the counters.
func (h *Host) Stats() Stats { return h.stats }

// Each calls f with the name and value of every counter.
func (h *Host) Each(f func(name string, value uint64)) {
	s := &h.stats
	f("clients", s.Clients)
	f("pending", uint64(len(h.clients)-len(h.free)))
	f("connected", s.Connected)
	f("refused", s.Refused)
	f("retries", s.Retries)
	f("left_early", s.LeftEarly)
	f("bad_lines", s.BadLines)
	f("slow_lines", s.SlowLines)
	f("pauses", s.Pauses)
	f("turned_away", s.TurnedAway)
	f("dials", s.Dials)
	f("dial_errors", s.DialErrors)
}

func (h *Host) logf(format string, a ...any) {
	if h.c.Log != nil {
		h.c.Log("guest %d: "+format, append([]any{h.c.CID}, a...)...)
	}
}
