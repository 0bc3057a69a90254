package vnet

import "guestwire/vring/vhostuser"

// Profile says what kind of frontend the device is offered to. Frontends differ
// in what they do with bits that are not theirs.
type Profile uint8

const (
	// ProfileQEMU leaves MAC, STATUS and config space to the frontend: QEMU
	// has its own and complains about ours.
	ProfileQEMU Profile = iota
	// ProfileUML passes every bit to the driver and has config space from us.
	ProfileUML
	// ProfileGeneric is any frontend that reads config space from us, such as
	// cloud-hypervisor and crosvm.
	ProfileGeneric
)

// ParseProfile returns the profile of a name: qemu, uml or generic.
func ParseProfile(name string) (Profile, bool) {
	for p, n := range profileNames {
		if n == name {
			return Profile(p), true
		}
	}
	return 0, false
}

var profileNames = [...]string{ProfileQEMU: "qemu", ProfileUML: "uml", ProfileGeneric: "generic"}

func (p Profile) String() string {
	if int(p) < len(profileNames) {
		return profileNames[p]
	}
	return "unknown"
}

// ConfigSpace says whether the frontend has our MAC address, MTU and link state
// from config space.
func (p Profile) ConfigSpace() bool { return p != ProfileQEMU }

// Groups of bits that options withhold together.
const (
	TSO = vhostuser.NetFGuestTSO4 | vhostuser.NetFGuestTSO6 | vhostuser.NetFGuestECN |
		vhostuser.NetFHostTSO4 | vhostuser.NetFHostTSO6 | vhostuser.NetFHostECN
	USO  = vhostuser.NetFGuestUSO4 | vhostuser.NetFGuestUSO6 | vhostuser.NetFHostUSO
	Csum = vhostuser.NetFCsum | vhostuser.NetFGuestCsum
)

// needsGuestCsum and needsCsum depend on GUEST_CSUM and CSUM (virtio 1.3,
// 5.1.3.1), each ECN on a TSO bit of its direction.
const (
	guestTSO       = vhostuser.NetFGuestTSO4 | vhostuser.NetFGuestTSO6
	hostTSO        = vhostuser.NetFHostTSO4 | vhostuser.NetFHostTSO6
	needsGuestCsum = guestTSO | vhostuser.NetFGuestECN | vhostuser.NetFGuestUSO4 | vhostuser.NetFGuestUSO6
	needsCsum      = hostTSO | vhostuser.NetFHostECN | vhostuser.NetFHostUSO
)

// Everything the device can do, whatever the profile.
const allFeatures = Csum | TSO | USO | vhostuser.NetFMrgRxbuf | vhostuser.NetFMTU |
	vhostuser.RingFIndirectDesc | vhostuser.RingFEventIdx | vhostuser.FInOrder | vhostuser.FVersion1

// offer returns the feature bits to offer: everything but what is withheld and
// what depends on it. One queue pair is served, so MQ is never offered: a driver
// that is told of more queues waits for packets on them.
func offer(p Profile, withhold uint64) uint64 {
	f := uint64(allFeatures)
	if p.ConfigSpace() {
		f |= vhostuser.NetFMAC | vhostuser.NetFStatus
	}
	return consistent(f &^ (withhold &^ vhostuser.FVersion1))
}

// consistent clears the bits whose requirements f does not meet. It serves the
// offer as well as what a careless driver acknowledges.
func consistent(f uint64) uint64 {
	if f&vhostuser.NetFGuestCsum == 0 {
		f &^= needsGuestCsum
	}
	if f&vhostuser.NetFCsum == 0 {
		f &^= needsCsum
	}
	if f&guestTSO == 0 {
		f &^= vhostuser.NetFGuestECN
	}
	if f&hostTSO == 0 {
		f &^= vhostuser.NetFHostECN
	}
	return f
}

// protocol returns the protocol features offered beyond vhostuser.AlwaysProtocol.
// Not MQ: without it GET_QUEUE_NUM is not asked, whose answer QEMU reads as queue
// pairs and UML as virtqueues.
func protocol(p Profile) uint64 {
	f := vhostuser.ProtocolFNetMTU | vhostuser.ProtocolFRARP
	if p.ConfigSpace() {
		f |= vhostuser.ProtocolFConfig
	}
	return f
}
