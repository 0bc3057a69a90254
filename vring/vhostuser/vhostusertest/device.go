// Package vhostusertest is a device to serve in tests of the vhost-user
// protocol: it records what it is told and, if asked to, moves buffers.
package vhostusertest

import (
	"fmt"

	"guestwire/vring"
	"guestwire/vring/vhostuser"
)

// FakeDevice implements vhostuser.Device. Its fields may be set before it is
// served.
type FakeDevice struct {
	FeatureBits  uint64
	ProtocolBits uint64
	NumQueues    int
	NumPairs     uint64 // answer to GET_QUEUE_NUM
	Config       []byte
	MaxMTU       uint16 // 0: any

	// Echo has every chain of an odd ring copied into one of the ring before it,
	// as a network of one guest and a mirror would; while the even ring is
	// disabled nothing is delivered, while the odd one is its chains are lost.
	Echo bool
	// OnKick, OnStart and OnStop run inside the calls of those names.
	OnKick          func(i int, q *vring.DeviceQueue)
	OnStart, OnStop func(i int, q *vring.DeviceQueue)

	Calls   []string             // one line per call, without Kicks and the questions
	Kicks   []int                // by ring
	Running []*vring.DeviceQueue // of running rings, nil otherwise
	Enabled []bool
	Acked   uint64
	Echoed  int // chains
	Lost    int // chains of disabled rings

	tx, rx vring.Chain
}

var _ vhostuser.Device = (*FakeDevice)(nil)

// New returns a device with n rings that offers the ring features and every
// protocol feature.
func New(n int) *FakeDevice {
	return &FakeDevice{
		FeatureBits:  vhostuser.FVersion1 | vhostuser.RingFEventIdx | vhostuser.RingFIndirectDesc | vhostuser.FInOrder,
		ProtocolBits: ^uint64(0), NumQueues: n, NumPairs: uint64(n / 2), Config: make([]byte, 12),
		Kicks: make([]int, n), Running: make([]*vring.DeviceQueue, n), Enabled: make([]bool, n),
	}
}

func (d *FakeDevice) note(format string, a ...any) {
	d.Calls = append(d.Calls, fmt.Sprintf(format, a...))
}

// Take returns Calls and forgets them.
func (d *FakeDevice) Take() []string {
	c := d.Calls
	d.Calls = nil
	return c
}

func (d *FakeDevice) Features() uint64 { return d.FeatureBits }
func (d *FakeDevice) Protocol() uint64 { return d.ProtocolBits }
func (d *FakeDevice) Queues() int      { return d.NumQueues }
func (d *FakeDevice) QueueNum() uint64 { return d.NumPairs }

func (d *FakeDevice) Negotiated(features uint64) {
	d.Acked = features
	d.note("Negotiated(%#x)", features)
}

func (d *FakeDevice) Start(i int, q *vring.DeviceQueue) {
	d.note("Start(%d)", i)
	d.Running[i] = q
	if d.OnStart != nil {
		d.OnStart(i, q)
	}
	q.ArmKick()
}

func (d *FakeDevice) Enable(i int, on bool) {
	d.note("Enable(%d, %v)", i, on)
	d.Enabled[i] = on
}

func (d *FakeDevice) Stop(i int) {
	d.note("Stop(%d)", i)
	if d.OnStop != nil {
		d.OnStop(i, d.Running[i])
	}
	d.Running[i].Publish()
	d.Running[i] = nil
}

func (d *FakeDevice) Kick(i int) {
	d.Kicks[i]++
	if d.OnKick != nil {
		d.OnKick(i, d.Running[i])
	}
	if d.Echo {
		d.echo(i | 1)
	}
}

func (d *FakeDevice) echo(i int) {
	for d.Running[i] != nil && d.echoBatch(i) {
	}
}

// echoBatch serves what is there and asks for kicks. It reports false when it has
// to wait for one.
func (d *FakeDevice) echoBatch(i int) bool {
	tx, rx := d.Running[i], d.Running[i-1]
	waiting := tx // for chains of this ring
	for tx.Pop(&d.tx) {
		if !d.Enabled[i] {
			d.Lost++
			tx.Push(d.tx.Head, 0)
			continue
		}
		if rx == nil || !d.Enabled[i-1] || !rx.Pop(&d.rx) {
			tx.Rewind(1)
			waiting = rx
			break
		}
		rx.Push(d.rx.Head, uint32(copySegs(d.rx.Writable, d.tx.Readable)))
		tx.Push(d.tx.Head, 0)
		d.Echoed++
	}
	if rx != nil {
		rx.Publish()
	}
	tx.Publish()
	// Without receive buffers, or a place to deliver, only a kick there helps.
	return waiting != nil && waiting.ArmKick() && (waiting == tx || d.Enabled[i-1])
}

// copySegs copies src into dst and returns how many bytes fit.
func copySegs(dst, src [][]byte) (n int) {
	var to []byte
	for _, s := range src {
		for len(s) > 0 {
			if len(to) == 0 {
				if len(dst) == 0 {
					return n
				}
				to, dst = dst[0], dst[1:]
				continue
			}
			k := copy(to, s)
			to, s, n = to[k:], s[k:], n+k
		}
	}
	return n
}

func (d *FakeDevice) Reset() {
	d.note("Reset()")
}

func (d *FakeDevice) Disconnected() {
	d.note("Disconnected()")
}

func (d *FakeDevice) ReadConfig(b []byte, off int) bool {
	if off+len(b) > len(d.Config) {
		return false
	}
	copy(b, d.Config[off:])
	return true
}

func (d *FakeDevice) WriteConfig(b []byte, off int) bool {
	d.note("WriteConfig(%d, %x)", off, b)
	return off+len(b) <= len(d.Config)
}

func (d *FakeDevice) SetMTU(mtu uint16) bool {
	d.note("SetMTU(%d)", mtu)
	return d.MaxMTU == 0 || mtu <= d.MaxMTU
}

func (d *FakeDevice) RARP(mac [6]byte) { d.note("RARP(%x)", mac) }
