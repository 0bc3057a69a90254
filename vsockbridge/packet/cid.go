package packet

import "fmt"

// Context identifiers with a meaning of their own (virtio 1.3, 5.10.4).
const (
	HostCID  uint64 = 2         // the host, whatever its guest
	AnyCID   uint64 = 1<<32 - 1 // VMADDR_CID_ANY, nobody's
	firstCID uint64 = 3
)

// CheckCID says why a guest cannot have the CID, nil if it can. 0, 1 and 2 are
// reserved, as is 0xffffffff; the upper 32 bits are zero (5.10.4).
func CheckCID(cid uint64) error {
	switch {
	case cid < firstCID:
		return fmt.Errorf("CID %d is reserved: a guest's is 3 or more", cid)
	case cid >= AnyCID:
		return fmt.Errorf("CID %d is too large: a guest's is at most %d", cid, AnyCID-1)
	}
	return nil
}
