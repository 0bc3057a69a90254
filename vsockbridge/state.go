package vsockbridge

import "guestwire/vsockbridge/packet"

// phase is where a connection is in its life.
type phase uint8

const (
	vacant  phase = iota
	dialing       // the guest's REQUEST waits for the host's connect
	asked         // our REQUEST waits for the guest's answer
	open          //
	leaving       // the guest has closed; what it sent is flushed, then RST
	ended         // nothing is left but the RST that is owed to the guest
	orphan        // the guest has forgotten it; what it sent is flushed
)

// state is what decides about a connection. guest and host are the directions
// that are shut down, as packet.Shutdown bits: guest as it has said, host as we
// have told it or owe to tell it.
type state struct {
	phase       phase
	guest, host uint32
	unsent      bool // bytes of the guest wait for the host socket
}

// event is what happens to a connection.
type event uint8

const (
	evRequest     event = iota // from the guest: packets by their operation
	evResponse                 //
	evReset                    //
	evShutReceive              //
	evShutSend                 //
	evShutBoth                 //
	evData                     //
	evCredit                   // CREDIT_UPDATE, CREDIT_REQUEST, SHUTDOWN of nothing
	evViolation                // a packet that cannot be
	evConnected                // of the host socket: connect has succeeded
	evFailed                   // there is none (any more)
	evEOF                      // all has been read, its peer sends no more
	evClosed                   // the same, and its peer receives no more
	evBroken                   // its peer receives no more
	evFlushed                  // it has taken all that waited
	evCancel                   // of the initiator
	evTimeout                  // of the deadline of the phase
	numEvents
)

// action is what is to be done about it, a set.
type action uint16

const (
	actRespond   action = 1 << iota // owe RESPONSE
	actReset                        // owe RST
	actTell                         // owe SHUTDOWN with what host says
	actDeliver                      // payload goes to the host socket
	actDiscard                      // payload is read and forgotten
	actAccept                       // ask the initiator for its socket
	actRefuse                       // tell the initiator that there will be none
	actShutRead                     // shut the host socket down for reading
	actShutWrite                    // and for writing
	actLinger                       // start the deadline of a phase that should be short
	actCloseHost                    // close the host socket, drop what waits for it
	actUnlist                       // the guest may use its ports for another
	actFree                         // nothing is left
	actReopen                       // behind actFree: the REQUEST is for a new connection
)

// end closes the connection with an RST.
func (s state) end() (state, action) {
	s.phase, s.unsent = ended, false
	return s, actCloseHost | actReset
}

// forget closes the connection without one.
func (s state) forget() (state, action) { return state{}, actCloseHost | actFree }

// step is the life of a connection.
func (s state) step(e event) (state, action) {
	switch s.phase {
	case dialing:
		return s.stepDialing(e)
	case asked:
		return s.stepAsked(e)
	case open:
		return s.stepOpen(e)
	case leaving:
		return s.stepLeaving(e)
	case ended:
		// The RST is on its way, and answers everything but a guest that needs none.
		switch e {
		case evReset:
			return s.forget()
		case evRequest:
			_, act := s.forget()
			return state{}, act | actReopen // a late RST would kill the new one
		}
	case orphan:
		switch e {
		case evFlushed, evClosed, evBroken, evFailed, evTimeout:
			return s.forget()
		}
	}
	return s, 0
}

func (s state) stepDialing(e event) (state, action) {
	switch e {
	case evCredit:
		return s, 0
	case evConnected:
		s.phase = open
		return s, actRespond
	case evReset:
		return s.forget()
	}
	return s.end()
}

func (s state) stepAsked(e event) (state, action) {
	switch e {
	case evCredit:
		return s, 0
	case evResponse:
		s.phase = open
		return s, actAccept
	case evReset:
		s, act := s.forget()
		return s, act | actRefuse
	case evCancel:
		return s.end()
	}
	s, act := s.end()
	return s, act | actRefuse
}

func (s state) stepOpen(e event) (state, action) {
	switch e {
	case evCredit, evConnected:
		return s, 0
	case evData:
		switch {
		case s.guest&packet.ShutdownSend != 0:
			return s.end()
		case s.host&packet.ShutdownReceive != 0:
			return s, actDiscard
		}
		return s, actDeliver
	case evShutReceive:
		return s.shut(packet.ShutdownReceive)
	case evShutSend:
		return s.shut(packet.ShutdownSend)
	case evShutBoth:
		return s.shut(packet.ShutdownBoth)
	case evFlushed:
		s.unsent = false
		if s.guest&packet.ShutdownSend != 0 {
			return s, actShutWrite
		}
		return s, 0
	case evEOF:
		return s.tell(packet.ShutdownSend)
	case evBroken:
		s.unsent = false
		return s.tell(packet.ShutdownReceive)
	case evClosed:
		s.unsent = false
		return s.tell(packet.ShutdownBoth)
	case evReset:
		return s.forget()
	}
	return s.end() // evRequest, evResponse, evViolation, evFailed, evTimeout, evCancel
}

// shut takes note of directions that the guest has shut down. They are hints
// that add up and are never taken back (5.10.6.6).
func (s state) shut(bits uint32) (state, action) {
	fresh := bits &^ s.guest
	s.guest |= bits
	switch {
	case s.guest == packet.ShutdownBoth:
		if !s.unsent {
			return s.end()
		}
		s.phase = leaving
		return s, actLinger
	case fresh&packet.ShutdownReceive != 0:
		return s, actShutRead
	case fresh&packet.ShutdownSend != 0 && !s.unsent:
		return s, actShutWrite
	}
	return s, 0
}

// tell adds directions that the host has shut down. With both the host socket
// has served; the guest answers with RST when it has read everything.
func (s state) tell(bits uint32) (state, action) {
	if s.host|bits == s.host {
		return s, 0
	}
	if s.host |= bits; s.host == packet.ShutdownBoth {
		s.unsent = false
		return s, actTell | actCloseHost | actLinger
	}
	return s, actTell
}

func (s state) stepLeaving(e event) (state, action) {
	switch e {
	case evReset:
		s.phase = orphan // it has stopped waiting; what it wrote before is still good
		return s, actUnlist | actLinger
	case evEOF, evCredit, evShutReceive, evShutSend, evShutBoth:
		return s, 0
	}
	return s.end() // evFlushed, and everything that is an end too
}
