package tcp

import (
	"net/netip"
	"time"

	"guestwire/translate/flow"
	"guestwire/translate/guest"
	"guestwire/translate/hostsock"
	"guestwire/translate/wire"
	"guestwire/vring/eventloop"
)

// Config is fixed when an Engine is made. Zero fields take the defaults.
type Config struct {
	Secret [16]byte // keys the initial sequence numbers: random, never persisted

	// How sockets towards a target are made, by the target's family.
	Options4, Options6 hostsock.Options

	MaxHalfOpen    int           // connections that are not established yet; 2048
	FlowRate       int           // new connections of the guest per second; 10,000
	ConnectTimeout time.Duration // a connect(2) may be in flight for so long; 60 s

	WindowMax  int // largest window advertised to the guest, bytes; 1 MiB, at most 2 MiB
	BufferMax  int // user-space buffers of all connections together, bytes; 64 MiB
	CopyMax    int // without SO_PEEK_OFF: unacknowledged bytes kept per connection; 512 KiB
	OutOfOrder int // out-of-order bytes kept per connection; 512 KiB

	KeepIdle  time.Duration // silence of the guest before it is probed; 2 h
	HalfIdle  time.Duration // likewise once one side has closed; 2 min
	IdleLimit time.Duration // no progress, half-closed or with a closed window, before the connection is given up; 4 h
}

// Deps are what an Engine works with.
type Deps struct {
	Port   *guest.Port
	Host   hostsock.Host
	Timers *eventloop.Wheel
	Flows  *flow.Table

	// Clock is the loop: the time of this turn. The wheel's own time is that of
	// the turn before, which may have slept for long. Nil: the wheel's time.
	Clock eventloop.Clock

	// Outbound says where on the host side dst and port are, or that the guest
	// may not go there.
	Outbound func(dst wire.Addr, port uint16) (netip.AddrPort, bool)

	// Unreachable sends the guest an ICMP error about orig, whose Head holds the
	// guest's SYN as far as an error quotes it. Nil: a RST is sent instead.
	Unreachable func(orig *wire.Packet, why Why)

	Log func(format string, a ...any) // nil: silent
}

// Why is the kind of an ICMP destination unreachable message.
type Why uint8

const (
	HostUnreach     Why = iota // host (address) unreachable
	NetUnreach                 // network unreachable, no route
	AdminProhibited            // communication administratively prohibited
)

// Protocol parameters that nobody needs to change.
const (
	startWindow  = 64 << 10  // first window, and the staging allowance of a new connection
	activeWindow = 128 << 10 // least allowance of a connection that has shown activity
	growPart     = 4         // the window is kept at least so many times what comes in one batch

	minMSS     = 256 // clamp of the guest's MSS option (T20)
	defaultMSS = 536 // RFC 9293 3.7.1, IPv4
	maxShift   = 14  // RFC 7323 2.3

	minRTO     = 200 * time.Millisecond
	firstRTO   = time.Second // RFC 6298 2.1
	maxRTO     = 60 * time.Second
	maxRetries = 12 // about 5 minutes
	synRetries = 6  // about 2 minutes

	keepInterval = 75 * time.Second
	halfInterval = 15 * time.Second
	keepProbes   = 9

	lingerTime = time.Second      // TimeWait
	abortTime  = 10 * time.Minute // a RST waits so long for room

	// A half-open connection is not evicted before. It is what the default limits
	// leave each one in a flood of SYNs, so that a target that answers within it
	// can be reached all the same: 2,048 of them at 10,000 per second.
	halfOpenGrace = 200 * time.Millisecond

	flushBytes  = 256 << 10 // gathered bytes of one connection that are written at once
	maxIOV      = 1024      // IOV_MAX
	maxRead     = 256 << 10 // bytes of one Peekv
	minRead     = 4 << 10   // first guess of what a socket holds
	maxSlots    = 256       // frames of one reservation
	turnBytes   = 512 << 10 // towards the guest per connection and turn
	discardAt   = 64 << 10  // ACKed bytes that are worth a system call while more is in flight
	blockedLong = 50 * time.Millisecond
	retryFull   = 2 * time.Second // a kernel short of memory may forget to say that it has room again

	challengeRate = 100 // challenge ACKs per second (RFC 5961 7)
	portProbes    = 16  // source ports tried for an inbound connection
)

// defaults fills in what c leaves open and clamps the rest.
func (c *Config) defaults() {
	set(&c.MaxHalfOpen, 2048)
	set(&c.FlowRate, 10_000)
	set(&c.ConnectTimeout, 60*time.Second)
	set(&c.WindowMax, 1<<20)
	set(&c.BufferMax, 64<<20)
	set(&c.CopyMax, 512<<10)
	set(&c.OutOfOrder, 512<<10)
	set(&c.KeepIdle, 2*time.Hour)
	set(&c.HalfIdle, 2*time.Minute)
	set(&c.IdleLimit, 4*time.Hour)
	c.WindowMax = min(max(c.WindowMax, startWindow), 2<<20)
	c.CopyMax = min(max(c.CopyMax, chunkSize), 2<<20)
	c.OutOfOrder = min(c.OutOfOrder, c.WindowMax)
	c.BufferMax = min(max(c.BufferMax, 64*chunkSize), maxChunks*chunkSize)
}

func set[T int | time.Duration](v *T, d T) {
	if *v == 0 {
		*v = d
	}
}
