package vsockbridge

import (
	"testing"

	"guestwire/vsockbridge/packet"
)

const (
	sRecv = packet.ShutdownReceive
	sSend = packet.ShutdownSend
	sBoth = packet.ShutdownBoth
)

// TestStates: the connection rules of virtio 1.3, 5.10.6, event by event.
func TestStates(t *testing.T) {
	end := actCloseHost | actReset
	forget := actCloseHost | actFree
	gone := state{phase: ended}
	for _, tc := range []struct {
		name  string
		from  state
		event event
		to    state
		act   action
	}{
		{"connect succeeds", state{phase: dialing}, evConnected, state{phase: open}, actRespond},
		{"connect fails", state{phase: dialing}, evFailed, gone, end},
		{"connect hangs", state{phase: dialing}, evTimeout, gone, end},
		{"guest gives up", state{phase: dialing}, evReset, state{}, forget},
		{"guest repeats its request", state{phase: dialing}, evRequest, gone, end},
		{"guest sends too soon", state{phase: dialing}, evData, gone, end},
		{"credit meanwhile", state{phase: dialing}, evCredit, state{phase: dialing}, 0},

		{"guest accepts", state{phase: asked}, evResponse, state{phase: open}, actAccept},
		{"guest refuses", state{phase: asked}, evReset, state{}, forget | actRefuse},
		{"guest is silent", state{phase: asked}, evTimeout, gone, end | actRefuse},
		{"client goes", state{phase: asked}, evCancel, gone, end},
		{"guest answers with data", state{phase: asked}, evData, gone, end | actRefuse},

		{"data", state{phase: open}, evData, state{phase: open}, actDeliver},
		{"data after the host stopped receiving", state{phase: open, host: sRecv}, evData, state{phase: open, host: sRecv}, actDiscard},
		{"data after the guest stopped sending", state{phase: open, guest: sSend}, evData, state{phase: ended, guest: sSend}, end},
		{"second request", state{phase: open}, evRequest, gone, end},
		{"second response", state{phase: open}, evResponse, gone, end},
		{"reset", state{phase: open}, evReset, state{}, forget},
		{"reset with bytes waiting", state{phase: open, unsent: true}, evReset, state{}, forget},
		{"guest sends no more", state{phase: open}, evShutSend, state{phase: open, guest: sSend}, actShutWrite},
		{"the same, bytes wait", state{phase: open, unsent: true}, evShutSend, state{phase: open, guest: sSend, unsent: true}, 0},
		{"they are flushed", state{phase: open, guest: sSend, unsent: true}, evFlushed, state{phase: open, guest: sSend}, actShutWrite},
		{"said again", state{phase: open, guest: sSend}, evShutSend, state{phase: open, guest: sSend}, 0},
		{"guest receives no more", state{phase: open}, evShutReceive, state{phase: open, guest: sRecv}, actShutRead},
		{"both one by one", state{phase: open, guest: sRecv}, evShutSend, state{phase: ended, guest: sBoth}, end},
		{"guest closes", state{phase: open}, evShutBoth, state{phase: ended, guest: sBoth}, end},
		{"guest closes, bytes wait", state{phase: open, unsent: true}, evShutBoth, state{phase: leaving, guest: sBoth, unsent: true}, actLinger},
		{"host sends no more", state{phase: open}, evEOF, state{phase: open, host: sSend}, actTell},
		{"said once", state{phase: open, host: sSend}, evEOF, state{phase: open, host: sSend}, 0},
		{"host receives no more", state{phase: open, unsent: true}, evBroken, state{phase: open, host: sRecv}, actTell},
		{"host closes", state{phase: open, unsent: true}, evClosed, state{phase: open, host: sBoth}, actTell | actCloseHost | actLinger},
		{"host closes after EOF", state{phase: open, host: sSend}, evClosed, state{phase: open, host: sBoth}, actTell | actCloseHost | actLinger},
		{"guest does not let go", state{phase: open, host: sBoth}, evTimeout, state{phase: ended, host: sBoth}, end},
		{"guest lets go", state{phase: open, host: sBoth}, evReset, state{}, forget},

		{"flushed at last", state{phase: leaving, guest: sBoth, unsent: true}, evFlushed, state{phase: ended, guest: sBoth}, end},
		{"guest stops waiting", state{phase: leaving, guest: sBoth, unsent: true}, evReset, state{phase: orphan, guest: sBoth, unsent: true}, actUnlist | actLinger},
		{"nobody reads", state{phase: leaving, guest: sBoth, unsent: true}, evTimeout, state{phase: ended, guest: sBoth}, end},
		{"host closes meanwhile", state{phase: leaving, guest: sBoth, unsent: true}, evClosed, state{phase: ended, guest: sBoth}, end},
		{"data after closing", state{phase: leaving, guest: sBoth, unsent: true}, evData, state{phase: ended, guest: sBoth}, end},

		{"RST crosses RST", gone, evReset, state{}, forget},
		{"ports used anew", gone, evRequest, state{}, forget | actReopen},
		{"anything else has its answer", gone, evData, gone, 0},
		{"orphan flushed", state{phase: orphan}, evFlushed, state{}, forget},
		{"orphan of a dead socket", state{phase: orphan}, evBroken, state{}, forget},
		{"orphan of a device that goes", state{phase: orphan}, evFailed, state{}, forget},
		{"orphan for too long", state{phase: orphan}, evTimeout, state{}, forget},
	} {
		if to, act := tc.from.step(tc.event); to != tc.to || act != tc.act {
			t.Errorf("%s: %+v, actions %#x; want %+v, %#x", tc.name, to, act, tc.to, tc.act)
		}
	}
}

// TestStatesHold: what must hold after any event in any state.
func TestStatesHold(t *testing.T) {
	for p := vacant; p <= orphan; p++ {
		for bits := range uint32(32) {
			for e := range numEvents {
				s := state{phase: p, guest: bits & 3, host: bits >> 2 & 3, unsent: bits>>4 == 1}
				to, act := s.step(e)
				switch {
				case to.guest&s.guest != s.guest && to.phase != vacant, to.host&s.host != s.host && to.phase != vacant:
					t.Errorf("%+v, event %d: a direction opens again", s, e)
				case e == evReset && act&actReset != 0:
					t.Errorf("%+v: RST is answered with RST", s)
				case (to.phase == ended) != (act&actReset != 0) && s.phase != ended:
					t.Errorf("%+v, event %d: %+v with actions %#x", s, e, to, act)
				case act&actFree != 0 && to != state{}:
					t.Errorf("%+v, event %d: freed as %+v", s, e, to)
				case (to.phase == ended || act&actFree != 0) && s.phase != ended && act&actCloseHost == 0:
					t.Errorf("%+v, event %d: the host socket is left open", s, e)
				}
			}
		}
	}
}
