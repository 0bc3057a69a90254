package vhostuser

import "guestwire/vring"

// Device is what a Server serves: a virtio device without its transport. All
// calls come on the loop, one at a time, and none of them may block.
//
// The order is: Negotiated, then for every ring Start, Kick any number of
// times, Stop; and again from Negotiated after a Reset or a Disconnected.
// Enable may come at any time, also for a ring that has not started. All rings
// start out stopped and disabled, and every change of that is told.
type Device interface {
	// Features is the set of virtio feature bits on offer. The server adds
	// VhostUserFProtocolFeatures and VhostFLogAll.
	Features() uint64
	// Protocol is the set of protocol features on offer beyond AlwaysProtocol.
	Protocol() uint64
	// Queues is the number of virtqueues, 1 to 256. It never changes.
	Queues() int
	// QueueNum answers GET_QUEUE_NUM, whose unit frontends disagree about
	// (QEMU and DPDK: pairs; UML: virtqueues), so the device decides.
	QueueNum() uint64

	// Negotiated tells the features that the frontend acknowledged. No ring
	// runs at that moment.
	Negotiated(features uint64)
	// Start hands over ring i, ready to be used. There may be chains in it
	// already: a Kick follows when it is enabled.
	Start(i int, q *vring.DeviceQueue)
	// Enable switches ring i on or off. A ring that runs disabled must have no
	// side effects: a network device delivers nothing to it and discards what
	// it takes from it (vhost-user, "Ring states").
	Enable(i int, on bool)
	// Stop takes ring i back. What was popped must be pushed or rewound and
	// published before it returns; the queue must not be touched afterwards.
	Stop(i int)
	// Kick says that ring i may have new chains. It may come for no reason, and
	// once more when a ring that runs has been enabled, or got new memory.
	Kick(i int)
	// Reset says that the guest starts anew. All rings are stopped.
	Reset()
	// Disconnected says that the frontend has gone. All rings are stopped and
	// disabled.
	Disconnected()

	// ReadConfig and WriteConfig access the config space; false when
	// [off, off+len(b)) is not inside it.
	ReadConfig(b []byte, off int) bool
	WriteConfig(b []byte, off int) bool
	// SetMTU is NET_SET_MTU; false refuses it.
	SetMTU(mtu uint16) bool
	// RARP asks for an announcement of mac on the network, after a migration
	// of a guest that does not announce itself.
	RARP(mac [6]byte)
}
