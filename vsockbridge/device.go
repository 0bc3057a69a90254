package vsockbridge

import (
	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
	"guestwire/vsockbridge/packet"
)

// Config describes the device. It does not change afterwards.
type Config struct {
	CID      uint64 // the guest's
	Host     Host   // serves the guest's connections to the host; nil: refuse all
	BufAlloc uint32 // bytes that a connection may have under way from the guest, 0: DefaultBufAlloc
	MaxConns int    // connections at a time, 0: DefaultMaxConns
	Group    *Group // guests that may reach each other; nil: none
	Withhold uint64 // feature bits not to be offered
	Log      func(format string, a ...any)
}

// Device is one virtio-vsock device: a vhostuser.Device towards the frontend.
type Device struct{}

// Group is a set of guests that may connect to each other, all on one loop.
type Group struct{}

// NewGroup makes an empty group.
func NewGroup() *Group { return &Group{} }

var _ vhostuser.Device = (*Device)(nil)

// New makes a device that lives on loop.
func New(c Config, loop *eventloop.Loop) (*Device, error) { return &Device{}, nil }

// Connect asks the guest for a connection to port. ENOTCONN: there is no guest; EAGAIN: no room.
func (d *Device) Connect(port uint32, t packet.Type, in Initiator, cookie uint32) (hostPort uint32, errno unix.Errno) {
	return 0, unix.ENOTCONN
}

// Cancel withdraws a Connect that was neither accepted nor refused yet.
func (d *Device) Cancel(hostPort uint32) {}

// Close ends all connections and takes the device off its loop.
func (d *Device) Close() {}

// Stats returns the counters.
func (d *Device) Stats() Stats { return Stats{} }

// Stats is a copy of everything the device counts.
type Stats struct{}

// Each calls f with the name and value of every counter.
func (s *Stats) Each(f func(name string, value uint64)) {}

func (d *Device) Features() uint64              { return 0 }
func (d *Device) Protocol() uint64              { return 0 }
func (d *Device) Queues() int                   { return 3 }
func (d *Device) QueueNum() uint64              { return 3 }
func (d *Device) Negotiated(uint64)             {}
func (d *Device) Start(int, *vring.DeviceQueue) {}
func (d *Device) Enable(int, bool)              {}
func (d *Device) Stop(int)                      {}
func (d *Device) Kick(int)                      {}
func (d *Device) Reset()                        {}
func (d *Device) Disconnected()                 {}
func (d *Device) ReadConfig([]byte, int) bool   { return false }
func (d *Device) WriteConfig([]byte, int) bool  { return false }
func (d *Device) SetMTU(uint16) bool            { return false }
func (d *Device) RARP([6]byte)                  {}
