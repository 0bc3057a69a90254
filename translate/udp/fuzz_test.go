package udp

import (
	"encoding/binary"
	"net/netip"
	"syscall"
	"testing"

	"guestwire/translate/flow"
	"guestwire/translate/hostsock"
	"guestwire/translate/hostsock/hostsocktest"
	"guestwire/translate/wire"
	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
)

// FuzzEngine plays a script of batches, answers, errors, failures, full rings,
// time and resets. Nothing may panic, spin, leak or grow, and every datagram
// that the guest or the kernel gave must be accounted for.
func FuzzEngine(f *testing.F) {
	f.Add([]byte{0, 1, 2, 3, 10, 11, 4, 5, 6, 7, 8, 9}, uint8(0))
	f.Add([]byte{0, 0, 0, 0, 12, 1, 6, 1, 6, 2, 12, 9, 3, 3, 3}, uint8(1))
	f.Add([]byte{0, 2, 2, 7, 7, 7, 13, 13, 5, 0, 0, 8, 8}, uint8(2))
	f.Fuzz(func(t *testing.T, script []byte, caps uint8) {
		if len(script) > 400 {
			return
		}
		list := []link.Caps{{MTU: 1500}, {MTU: 1500, Csum: true}, linktest.AllCaps(1500), {MTU: 576}}
		r := newRig(t, Config{MaxFlows: 6}, list[caps%4])
		fuzz{r: r, served: serve(t, r, "0.0.0.0:5300")}.run(script)
	})
}

type fuzz struct {
	r      *rig
	served hostsock.FD
}

func (z fuzz) run(script []byte) {
	r := z.r
	given, slack := uint64(0), uint64(0) // datagrams of the guest
	for i, op := range script {
		arg := int(op >> 4)
		switch op & 15 {
		case 0, 1, 2, 3: // a batch
			var ds []dgram
			for n := range arg + 1 {
				d := to(uint16(1000+(n*int(op)+i)%8), []int{0, 1, 100, 100, 1400, 3000}[(n+i)%6])
				if (n+i)%5 == 4 {
					d.gso = 500
				}
				if (n+i)%7 == 6 {
					d.ttl = uint8(1 + n%3)
				}
				given++
				if d.gso > 0 && len(d.data) > d.gso {
					// Dropped as one frame, or sent as several datagrams.
					more := uint64((len(d.data) - 1) / d.gso)
					given, slack = given+more, slack+more
				}
				ds = append(ds, d)
			}
			r.send(ds...)
		case 4, 5: // answers
			for _, fd := range r.k.FDs() {
				d := hostsocktest.Datagram{Data: pattern(arg * 300)}
				if arg > 8 {
					d.SegSize = 400
				}
				if fd == z.served {
					d.From = netip.AddrPortFrom(netip.AddrFrom4([4]byte{203, 0, 113, byte(i)}), uint16(1+arg))
				}
				r.k.Deliver(fd, d)
			}
		case 6:
			r.k.Run()
		case 7:
			for _, fd := range r.k.FDs() {
				r.k.DeliverError(fd, hostsock.SockErr{Errno: syscall.ECONNREFUSED, Type: uint8(arg), Code: 3, Offender: remote4.ToNetip(), Dest: netip.MustParseAddrPort("203.0.113.1:5")}, pattern(arg))
			}
		case 8:
			r.ep.Room = arg * 3
		case 9:
			if r.ep.Room == linktest.Unlimited {
				r.ep.Room = 0
			}
			if r.ep.Post(arg + 1) {
				r.e.Writable()
			}
		case 10:
			r.advance([]eventloop.Time{10 * ms, 1000 * ms, 31_000 * ms, 121_000 * ms}[arg%4])
		case 11:
			r.k.FailNext([]string{"Dial", "Send", "Recv", "Errors", "SetTTL"}[arg%5],
				[]syscall.Errno{syscall.ECONNREFUSED, syscall.EMFILE, syscall.EPERM}[arg%3])
		case 12:
			r.port.Up = !r.port.Up
			r.e.Writable()
		case 13:
			r.e.ResetAll()
			if r.flows.Len() != 0 {
				r.t.Fatal("flows after ResetAll")
			}
		case 14:
			r.k.SetRoom(z.served, arg)
		case 15:
			r.k.MaxFDs = 2 + arg
		}
		z.check()
	}
	// Make peace: all that waits must reach the guest.
	r.port.Up, r.ep.Room, r.ep.Short = true, linktest.Unlimited, false
	r.e.Writable()
	r.k.Run()
	z.check()
	if r.e.rx.stalled() {
		r.t.Fatal("stalled with room for everything")
	}
	out := r.stat("to_host") + r.stat("drop_ttl") + r.stat("drop_flows") + r.stat("drop_host") + r.stat("drop_busy")
	if given < out || given-out > slack {
		r.t.Fatalf("%d datagrams given (%d of them in USO frames), %d accounted for", given, slack, out)
	}
	for i := range r.ep.Sent {
		checkFrame(r.t, r.ep.Sent[i].Data)
	}
	r.e.Unserve(z.served)
	r.advance(130_000 * ms)
	if r.flows.Len() != 0 || r.wheel.Len() != 0 || r.k.Open() != 1 {
		r.t.Fatalf("left over: %d flows, %d timers, %d sockets", r.flows.Len(), r.wheel.Len(), r.k.Open())
	}
}

// check holds after every step.
func (z fuzz) check() {
	r, e := z.r, z.r.e
	own := 0
	r.flows.All(func(i uint32, f *flow.Flow) bool {
		c := e.conns.At(f.Slot)
		if c.flow != i || !r.wheel.Armed(c.timer) || c.first != 0 {
			r.t.Fatalf("flow %d: conn %+v", i, c)
		}
		if c.listener == 0 {
			own++
		}
		return true
	})
	if r.flows.Len() > 6 || r.flows.Len() != e.conns.Len() || r.k.Open() != own+1 || r.wheel.Len() != r.flows.Len() {
		r.t.Fatalf("%d flows, %d conns, %d sockets for %d, %d timers", r.flows.Len(), e.conns.Len(), r.k.Open(), own, r.wheel.Len())
	}
	if len(e.wait.q) > 64 || len(e.batch.items) != 1 || e.out.n != 0 {
		r.t.Fatalf("%d waiting, %d items, %d messages", len(e.wait.q), len(e.batch.items), e.out.n)
	}
}

// checkFrame: what the guest gets parses as a packet for it.
func checkFrame(t testing.TB, data []byte) {
	var p wire.Packet
	f := link.Frame{Len: len(data), Segs: [][]byte{data}, Off: link.Offload{DataValid: true}}
	if v := wire.Parse(&p, &f); v != wire.OK {
		t.Fatalf("a frame for the guest: %v, %x", v, data[:min(len(data), 60)])
	}
	if p.Dst != guest4 || binary.BigEndian.Uint16(data[12:]) != wire.EtherIPv4 {
		t.Fatalf("a frame for %v", p.Dst)
	}
}
