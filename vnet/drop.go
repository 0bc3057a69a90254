package vnet

// Drop is why a chain of the guest came to nothing. The chain goes back to the
// driver, the counter of the reason goes up by one, and that is all.
type Drop uint8

const (
	dropNone        Drop = iota
	DropShort            // from the guest: shorter than the virtio and Ethernet headers
	DropOversize         // from the guest: longer than link.MaxFrame
	DropMTU              // from the guest: longer than the negotiated MTU, and not GSO
	DropGSO              // from the guest: GSO type unknown or not negotiated, size 0, ECN alone, no checksum request
	DropCsum             // from the guest: checksum offload not negotiated, or its offsets outside the frame
	DropDirection        // from the guest: the chain has no readable bytes but writable ones
	DropEmpty            // from the guest: the chain has no bytes at all
	DropDisabled         // from the guest: the ring runs but is disabled
	DropRxShort          // towards the guest: the chain is smaller than the virtio header or, unmerged, than a frame
	DropRxDirection      // towards the guest: the chain has no writable bytes
	DropRxOffload        // towards the guest: frame with an offload that the guest did not negotiate, or lengths beyond the reservation
	numDrops
)

var dropNames = [numDrops]string{
	dropNone:        "none",
	DropShort:       "short",
	DropOversize:    "oversize",
	DropMTU:         "mtu",
	DropGSO:         "gso",
	DropCsum:        "csum",
	DropDirection:   "direction",
	DropEmpty:       "empty",
	DropDisabled:    "disabled",
	DropRxShort:     "rx-short",
	DropRxDirection: "rx-direction",
	DropRxOffload:   "rx-offload",
}

func (d Drop) String() string {
	if d < numDrops {
		return dropNames[d]
	}
	return "unknown"
}
