package tcp

// State is where a connection is, as the peer of the guest's TCP sees it: the
// names are those of RFC 9293 3.3.2 for our end, with Connecting in front (the
// SYN is not answered yet) and Aborted behind (nothing is left but a RST that
// the guest has no room for).
type State uint8

const (
	Closed      State = iota // no connection
	Connecting               // guest's SYN taken, connect(2) to the target in flight
	SynReceived              // target connected, SYN-ACK sent to the guest
	SynSent                  // accepted from the host, SYN sent to the guest
	Established              // both halves open
	CloseWait                // guest closed its half, target has not
	FinWait1                 // target closed its half, our FIN not ACKed by the guest
	FinWait2                 // our FIN ACKed, guest's half still open
	Closing                  // both closed, target first; our FIN not ACKed
	LastAck                  // both closed, guest first; our FIN not ACKed
	TimeWait                 // both closed and ACKed; answers a repeated FIN
	Aborted                  // host socket gone, RST to the guest still owed
	nStates
)

var stateNames = [nStates]string{
	"closed", "connecting", "syn-received", "syn-sent", "established", "close-wait",
	"fin-wait-1", "fin-wait-2", "closing", "last-ack", "time-wait", "aborted",
}

// String is the state's name in lower case.
func (s State) String() string {
	if s < nStates {
		return stateNames[s]
	}
	return "invalid"
}

// Event is what can happen to a connection.
type Event uint8

const (
	HostUp          Event = iota // connect(2) succeeded
	HostRefused                  // connect(2) failed in a way that a RST tells best
	HostUnreachable              // connect(2) failed in a way that an ICMP error tells best
	HostSilent                   // connect(2) failed in a way that the guest should find out itself
	HostEOF                      // every byte of the target was read, then its end
	HostError                    // the host socket failed
	GuestSynAck                  // guest answered our SYN
	GuestAck                     // guest ACKed our SYN
	GuestFin                     // guest's FIN came in order
	GuestReset                   // guest sent an acceptable RST
	GuestSyn                     // guest sent a bare SYN where we had sent ours: simultaneous open
	Flushed                      // guest has closed and the kernel has all of its bytes
	FinAcked                     // guest ACKed our FIN (in Closing and LastAck: and Flushed came before)
	GiveUp                       // retries, keepalives or limits ran out
	TimeOver                     // TimeWait's timer (not before Flushed)
	ResetSent                    // Aborted's RST has gone out
	Renewed                      // the guest started anew
	nEvents
)

var eventNames = [nEvents]string{
	"host-up", "host-refused", "host-unreachable", "host-silent", "host-eof", "host-error",
	"guest-synack", "guest-ack", "guest-fin", "guest-reset", "guest-syn",
	"flushed", "fin-acked", "give-up", "time-over", "reset-sent", "renewed",
}

// String is the event's name in lower case.
func (ev Event) String() string {
	if ev < nEvents {
		return eventNames[ev]
	}
	return "invalid"
}

// Action is a set of things that the driver does after a step, in the order of
// the bits.
type Action uint16

const (
	SendReset   Action = 1 << iota // RST to the guest
	SendSynAck                     // SYN-ACK to the guest
	SendAck                        // owe the guest an ACK
	QueueFin                       // FIN to the guest behind the last byte
	Open                           // both sides agreed: begin to move data
	Shutdown                       // no more bytes to the target: shutdown(SHUT_WR)
	Report                         // ICMP error to the guest
	CloseHost                      // close(2); the target sees an orderly end
	AbortHost                      // close(2) with a RST to the target
	StartLinger                    // start the timer of TimeWait or Aborted
	Free                           // the connection is over, and its flow
	nActions    = iota
)

var actionNames = [nActions]string{
	"send-reset", "send-synack", "send-ack", "queue-fin", "open", "shutdown", "report",
	"close-host", "abort-host", "linger", "free",
}

// String lists the actions, "-" for none.
func (a Action) String() string {
	s := ""
	for i, name := range actionNames {
		if a&(1<<i) == 0 {
			continue
		}
		if s != "" {
			s += "+"
		}
		s += name
	}
	if s == "" {
		return "-"
	}
	return s
}

type transition struct {
	to State
	do Action
	ok bool
}

// machine is the whole state machine. What it does not list changes nothing and
// asks for nothing.
var machine = [nStates][nEvents]transition{
	Connecting: {
		HostUp:          {SynReceived, SendSynAck, true},
		HostRefused:     {Aborted, SendReset | CloseHost | StartLinger, true},
		HostUnreachable: {Closed, Report | CloseHost | Free, true},
		HostSilent:      {Closed, CloseHost | Free, true},
		HostError:       {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestReset:      {Closed, AbortHost | Free, true},
		// The guest repeats its SYN and gets another try when there is room.
		GiveUp:  {Closed, AbortHost | Free, true},
		Renewed: {Closed, AbortHost | Free, true},
	},
	SynReceived: {
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestAck:   {Established, Open, true},
		GuestReset: {Closed, AbortHost | Free, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	SynSent: {
		HostError:   {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestSynAck: {Established, SendAck | Open, true},
		GuestReset:  {Closed, AbortHost | Free, true},
		GuestSyn:    {Aborted, SendReset | AbortHost | StartLinger, true},
		GiveUp:      {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:     {Closed, AbortHost | Free, true},
	},
	Established: {
		HostEOF:    {FinWait1, QueueFin, true},
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestFin:   {CloseWait, SendAck, true},
		GuestReset: {Closed, AbortHost | Free, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	CloseWait: {
		HostEOF:    {LastAck, QueueFin, true},
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestReset: {Closed, AbortHost | Free, true},
		Flushed:    {CloseWait, Shutdown, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	FinWait1: {
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestFin:   {Closing, SendAck, true},
		GuestReset: {Closed, AbortHost | Free, true},
		FinAcked:   {FinWait2, 0, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	FinWait2: {
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestFin:   {TimeWait, SendAck | StartLinger, true},
		GuestReset: {Closed, AbortHost | Free, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	Closing: {
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestReset: {Closed, AbortHost | Free, true},
		Flushed:    {Closing, Shutdown, true},
		FinAcked:   {TimeWait, CloseHost | StartLinger, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	LastAck: {
		HostError:  {Aborted, SendReset | AbortHost | StartLinger, true},
		GuestReset: {Closed, AbortHost | Free, true},
		Flushed:    {LastAck, Shutdown, true},
		FinAcked:   {Closed, CloseHost | Free, true},
		GiveUp:     {Aborted, SendReset | AbortHost | StartLinger, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	TimeWait: {
		// The guest has had its orderly end; nothing can be told to it any more.
		HostError:  {Closed, AbortHost | Free, true},
		GuestReset: {Closed, AbortHost | Free, true},
		Flushed:    {TimeWait, CloseHost, true},
		GiveUp:     {Closed, AbortHost | Free, true},
		TimeOver:   {Closed, CloseHost | Free, true},
		Renewed:    {Closed, AbortHost | Free, true},
	},
	Aborted: {
		GuestReset: {Closed, Free, true},
		GiveUp:     {Closed, Free, true},
		ResetSent:  {Closed, Free, true},
		Renewed:    {Closed, Free, true},
	},
}

// step is the state machine: what becomes of a connection in state s when ev
// happens, and what the driver has to do. It is pure.
func step(s State, ev Event) (State, Action) {
	if s >= nStates || ev >= nEvents {
		return s, 0
	}
	if t := machine[s][ev]; t.ok {
		return t.to, t.do
	}
	return s, 0
}

// halfOpen says whether the two sides have not agreed yet.
func (s State) halfOpen() bool { return s == Connecting || s == SynReceived || s == SynSent }

// synchronized says whether sequence numbers were exchanged both ways (RFC 9293
// 3.5.1) and the connection still takes segments.
func (s State) synchronized() bool { return s >= Established && s <= TimeWait }

// takesData says whether bytes of the guest may still come.
func (s State) takesData() bool { return s == Established || s == FinWait1 || s == FinWait2 }

// sendsData says whether bytes or the FIN may still have to go to the guest.
func (s State) sendsData() bool {
	return s == Established || s == CloseWait || s == FinWait1 || s == Closing || s == LastAck
}

// halfClosed says whether one side has closed and the other has not.
func (s State) halfClosed() bool { return s >= CloseWait && s <= LastAck }
