package vhostuser

// Phase is how far a ring is from being processed.
type Phase uint8

const (
	Stopped Phase = iota // not set up, or stopped by GET_VRING_BASE
	Waiting              // set up; runs as soon as guest memory has all of it
	Running
	Broken // found untrustworthy; nothing revives it but being set up again
)

func (p Phase) String() string {
	return [...]string{"stopped", "waiting", "running", "broken"}[p]
}

// Has says what the frontend has told about a ring.
type Has uint8

const (
	HasNum Has = 1 << iota
	HasAddr
	HasKick
	HasAll = HasNum | HasAddr | HasKick
)

// RingState is the state of a ring; Step is all there is to its life.
type RingState struct {
	Phase   Phase
	Enabled bool
	Has     Has
}

// Event is what can happen to a ring.
type Event uint8

const (
	EvNum      Event = iota // SET_VRING_NUM
	EvAddr                  // SET_VRING_ADDR, the addresses it had (the log may differ)
	EvMove                  // SET_VRING_ADDR, other addresses
	EvBase                  // SET_VRING_BASE
	EvKick                  // SET_VRING_KICK
	EvGetBase               // GET_VRING_BASE
	EvEnable                // SET_VRING_ENABLE 1
	EvDisable               // SET_VRING_ENABLE 0
	EvMapped                // guest memory has changed, or was asked for, and has the ring
	EvUnmapped              // guest memory has changed and has not
	EvBreak                 // the ring is untrustworthy
	EvReset                 // RESET_DEVICE, or the frontend has gone
	NumEvents               // how many there are, to print the table with
)

var eventNames = [NumEvents]string{"NUM", "ADDR", "ADDR (moved)", "BASE", "KICK", "GET_BASE", "ENABLE 1", "ENABLE 0",
	"mapped", "unmapped", "break", "reset"}

func (e Event) String() string { return eventNames[e] }

// Action is what Step wants done, a set. They are done in the order of the bits.
type Action uint16

const (
	ActRefuse  Action = 1 << iota // NACK; nothing else is done
	ActStop                       // take the queue back from the device and keep its base
	ActTry                        // see whether memory has the ring: EvMapped if so
	ActStart                      // hand a queue to the device
	ActRemap                      // give the queue its areas in the new memory
	ActRelog                      // tell the queue how to log
	ActEnable                     // tell the device
	ActDisable                    //
	ActPoke                       // have the device look at the ring
)

var actionNames = [...]string{"refuse", "stop", "try", "start", "remap", "relog", "enable", "disable", "poke"}

func (a Action) String() string {
	s := ""
	for i, n := range actionNames {
		if a&(1<<i) != 0 {
			if s != "" {
				s += "+"
			}
			s += n
		}
	}
	return s
}

// Step tells what ev makes of a ring.
//
// A ring starts once it has a size, addresses and a kick, in whatever order
// they come, and does not wait for the first kick: no backend in the field does,
// and the driver may have kicked before the descriptor reached us.
func (s RingState) Step(ev Event) (RingState, Action) {
	switch ev {
	case EvEnable, EvDisable:
		return s.enable(ev == EvEnable)
	case EvReset:
		// Everything is forgotten.
		act := s.ifRunning(ActStop)
		if s.Enabled {
			act |= ActDisable
		}
		return RingState{}, act
	case EvGetBase:
		// Stops, and is idempotent. The kick is dropped, as all backends do;
		// without that the ring would start again at the next message.
		return s.stopped(), s.ifRunning(ActStop)
	case EvNum, EvBase:
		return s.resize(ev)
	case EvAddr, EvMove:
		return s.place(ev)
	case EvKick:
		if s.Phase == Running {
			return s, ActPoke // replaced; there may have been a kick into the old one
		}
		return s.have(HasKick)
	case EvBreak:
		if s.Phase == Running {
			s.Phase = Broken
			return s, ActStop
		}
	case EvMapped:
		switch s.Phase {
		case Waiting:
			s.Phase = Running
			if !s.Enabled {
				// What is in the ring already would be discarded; ENABLE may be on
				// its way.
				return s, ActStart
			}
			return s, ActStart | ActPoke
		case Running:
			return s, ActRemap | ActPoke
		}
	case EvUnmapped:
		if s.Phase == Running {
			s.Phase = Waiting
			return s, ActStop
		}
	}
	return s, 0
}

func (s RingState) enable(on bool) (RingState, Action) {
	if s.Enabled == on {
		return s, 0
	}
	s.Enabled = on
	if !on {
		return s, ActDisable
	}
	return s, ActEnable | s.ifRunning(ActPoke)
}

// resize is SET_VRING_NUM and SET_VRING_BASE. They mean a new life of the ring,
// so one that is in use refuses them (a size that changes under a running queue
// has been the way out of a sandbox before). But user mode Linux sets its rings
// up anew with no more of a goodbye than ENABLE 0.
func (s RingState) resize(ev Event) (RingState, Action) {
	act := Action(0)
	if s.Phase == Running || s.Phase == Broken {
		if s.Enabled {
			return s, ActRefuse
		}
		act = s.ifRunning(ActStop)
		s = s.stopped()
	}
	if ev == EvBase {
		return s, act
	}
	s, more := s.have(HasNum)
	return s, act | more
}

// place is SET_VRING_ADDR, which QEMU sends for running rings, too, when it
// switches logging.
func (s RingState) place(ev Event) (RingState, Action) {
	if s.Phase != Running {
		return s.have(HasAddr)
	}
	if ev == EvAddr {
		return s, ActRelog
	}
	s.Phase = Waiting
	return s, ActStop | ActTry
}

func (s RingState) have(h Has) (RingState, Action) {
	s.Has |= h
	if s.Has != HasAll || s.Phase == Broken {
		return s, 0
	}
	s.Phase = Waiting
	return s, ActTry
}

func (s RingState) stopped() RingState {
	s.Phase = Stopped
	s.Has &^= HasKick
	return s
}

func (s RingState) ifRunning(a Action) Action {
	if s.Phase == Running {
		return a
	}
	return 0
}
