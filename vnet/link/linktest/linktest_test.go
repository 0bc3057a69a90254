package linktest

import (
	"bytes"
	"strings"
	"testing"

	"guestwire/vnet/link"
)

func TestEndpointRecords(t *testing.T) {
	e := NewEndpoint(t, link.Caps{MTU: 1500})
	e.SegLen, e.Room = 7, 2
	slots := e.Reserve(14, 20, 3)
	if len(slots) != 2 || !e.Short {
		t.Fatalf("got %d slots, short %v; want 2, true", len(slots), e.Short)
	}
	if n := len(slots[0].Payload); n != 3 {
		t.Errorf("20 bytes in %d segments of 7, want 3", n)
	}
	head := bytes.Repeat([]byte{1}, 14)
	copy(slots[0].Header, head)
	copy(slots[0].Payload[0], "abcdefg")
	copy(slots[0].Payload[1], "hij")
	slots[0].Used = 9
	kept := slots[0].Header
	e.Commit(1)
	if want := string(head) + "abcdefghi"; string(e.Sent[0].Data) != want {
		t.Errorf("recorded %q, want %q", e.Sent[0].Data, want)
	}
	if kept[0] != poison {
		t.Error("slot memory is not poisoned after Commit")
	}
	if e.Room != 1 {
		t.Errorf("room %d, want 1: the slot that was not committed goes back", e.Room)
	}
	if !e.Post(1) || e.Post(1) {
		t.Error("Post owes Writable once after a short Reserve")
	}
}

func TestEndpointHoldsToContract(t *testing.T) {
	frame := func(payload int, off link.Offload) func(*Endpoint) {
		return func(e *Endpoint) {
			s := e.Reserve(54, payload, 1)
			s[0].Used, s[0].Off = payload, off
			e.Commit(1)
		}
	}
	gso := link.Offload{GSO: link.GSOTCPv4, NeedsCsum: true, SegSize: 1460, CsumStart: 34, CsumOff: 16}
	for name, tc := range map[string]struct {
		caps link.Caps
		do   func(*Endpoint)
		want string
	}{
		"reserve twice":    {link.Caps{}, func(e *Endpoint) { e.Reserve(14, 0, 1); e.Reserve(14, 0, 1) }, "open"},
		"commit alone":     {link.Caps{}, func(e *Endpoint) { e.Commit(0) }, "without"},
		"commit too many":  {link.Caps{}, func(e *Endpoint) { e.Reserve(14, 0, 1); e.Commit(2) }, "2 slots"},
		"long header":      {link.Caps{}, func(e *Endpoint) { e.Reserve(link.MaxHeader+1, 0, 1) }, "header"},
		"used too much":    {link.Caps{}, func(e *Endpoint) { e.Reserve(14, 1, 1)[0].Used = 2; e.Commit(1) }, "Used"},
		"beyond the MTU":   {link.Caps{}, frame(1461, link.Offload{}), "MTU"},
		"gso not offered":  {link.Caps{Csum: true}, frame(9000, gso), "GSO type"},
		"csum not offered": {link.Caps{TSO4: true}, frame(9000, gso), "checksum"},
		"csum in Ethernet": {link.Caps{Csum: true}, frame(0, link.Offload{NeedsCsum: true, CsumStart: 6}), "offsets"},
		"super-frame":      {AllCaps(1500), frame(link.MaxGSOFrame-53, gso), "MaxGSOFrame"},
		"fine":             {AllCaps(1500), frame(9000, gso), ""},
	} {
		t.Run(name, func(t *testing.T) {
			defer func() {
				msg, _ := recover().(string)
				if (msg == "") != (tc.want == "") || !strings.Contains(msg, tc.want) {
					t.Errorf("complaint %q, want one with %q", msg, tc.want)
				}
			}()
			tc.do(NewEndpoint(nil, tc.caps))
		})
	}
}

func TestDiscardDoesNotAllocate(t *testing.T) {
	e := NewEndpoint(t, AllCaps(1500))
	e.Discard, e.SegLen = true, 4096
	h := &Handler{Discard: true}
	batch := Batch(1000, Frame{Data: make([]byte, 3000)})
	e.Commits = 0
	run := func() {
		slots := e.Reserve(54, 60000, 4)
		for i := range slots {
			slots[i].Used = 1000
		}
		e.Commit(4)
		h.Frames(batch)
	}
	run()
	if n := testing.AllocsPerRun(100, run); n != 0 {
		t.Errorf("%v allocations per run", n)
	}
}

func TestSend(t *testing.T) {
	e := NewEndpoint(t, link.Caps{})
	e.SegLen, e.Room = 3, 1
	if !link.Send(e, []byte("0123456789abcd"), []byte("payload"), link.Offload{}) {
		t.Fatal("refused with room")
	}
	if got := string(e.Take()[0].Data); got != "0123456789abcdpayload" {
		t.Errorf("sent %q", got)
	}
	if link.Send(e, make([]byte, 14), nil, link.Offload{}) {
		t.Error("sent without room")
	}
}
