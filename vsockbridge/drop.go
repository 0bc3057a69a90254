package vsockbridge

// Drop is why a chain of the guest came to nothing. The chain goes back to the
// driver, the counter of the reason goes up by one; where there is a connection
// that has lost bytes by it, that is reset.
type Drop uint8

const (
	dropNone    Drop = iota
	DropShort        // from the guest: shorter than a header
	DropCID          // from the guest: not its own CID, or for a CID that is neither the host's nor a sibling's
	DropLength       // from the guest: payload longer than the chain, or than 64 KiB
	DropRxShort      // towards the guest: the chain has no room for a header or, with payload, for a byte behind it
	numDrops
)

var dropNames = [numDrops]string{
	dropNone:    "none",
	DropShort:   "short",
	DropCID:     "cid",
	DropLength:  "length",
	DropRxShort: "rx-short",
}

func (r Drop) String() string {
	if r < numDrops {
		return dropNames[r]
	}
	return "unknown"
}

func (d *Device) drop(r Drop) { d.drops[r]++ }
