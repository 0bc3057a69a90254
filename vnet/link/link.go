package link

// MaxFrame is the largest frame, in bytes, that crosses the seam in either
// direction: Ethernet and IPv6 header, and all that the latter can count.
const MaxFrame = 14 + 40 + 65535

// MaxGSOFrame is the largest super-frame towards a guest: an IPv4 packet with
// the longest total length, behind an Ethernet header. Drivers of either family
// expect no more.
const MaxGSOFrame = 14 + 65535

// MaxHeader is the largest header, in bytes, that Reserve accepts:
// Ethernet (14) + IPv6 (40) + TCP with options (60), rounded up.
const MaxHeader = 128

// GSO says how a super-frame must be cut into packets (virtio 1.3, 5.1.6.2).
type GSO uint8

const (
	GSONone  GSO = iota // one packet
	GSOTCPv4            // TCP over IPv4, SegSize bytes of payload per segment
	GSOTCPv6            // TCP over IPv6
	GSOUDP              // UDP (USO), SegSize bytes of payload per datagram
)

// Offload is what the virtio-net header says about one frame.
type Offload struct {
	GSO       GSO
	ECN       bool   // the segments carry CWR only in the first (VIRTIO_NET_HDR_GSO_ECN)
	NeedsCsum bool   // L4 checksum field holds only the pseudo-header sum
	DataValid bool   // the sender vouches for the L4 checksum
	SegSize   uint16 // L4 payload bytes per segment, 0 without GSO
	CsumStart uint16 // bytes from the start of the frame to the L4 header, with NeedsCsum
	CsumOff   uint16 // bytes from CsumStart to the checksum field, with NeedsCsum
}

// Frame is one Ethernet frame from the guest.
// Segs points into guest memory and is valid until Handler.Frames returns.
type Frame struct {
	Off  Offload
	Len  int      // sum of the lengths of Segs, >= 14
	Segs [][]byte // the frame, Ethernet header first; no virtio header
}

// Caps is what an Endpoint can take towards the guest. It changes only at
// Handler.LinkUp.
type Caps struct {
	MTU   int  // largest L3 packet without GSO, bytes
	Csum  bool // frames may be sent with Offload.NeedsCsum or DataValid
	TSO4  bool // GSOTCPv4 frames up to MaxFrame
	TSO6  bool
	USO   bool // GSOUDP frames
	Stats *Stats
}

// Stats are counters that a device keeps, one writer (the loop).
type Stats struct {
	RxFrames, RxBytes uint64 // towards the guest
	TxFrames, TxBytes uint64 // from the guest
}

// Slot is room for one frame towards the guest.
type Slot struct {
	Header  []byte   // private scratch of the reserved header length: caller fills it with L2-L4 headers
	Payload [][]byte // guest memory right behind the header, the reserved payload length in total
	Used    int      // payload bytes the frame really has; set by the caller before Commit
	Off     Offload  // set by the caller before Commit; zero value: plain frame
}

// Endpoint carries frames to the guest. All methods are called on the loop.
type Endpoint interface {
	// Reserve opens a reservation of up to n slots, each with header bytes
	// (<= MaxHeader) of scratch and payload bytes of guest memory. It returns
	// fewer slots, down to none, when the guest has not posted enough buffers;
	// Handler.Writable follows when it has posted more. The slots are valid until
	// Commit, which must be called exactly once if Reserve returned any slot.
	Reserve(header, payload, n int) []Slot

	// Commit hands the first k slots to the guest, in order, each cut to
	// Slot.Used, and gives the rest back to the ring, so nothing is lost. The
	// guest is told at the end of the loop's turn.
	Commit(k int)

	// Caps returns what the guest side accepts now.
	Caps() Caps
}

// Handler gives meaning to frames. All methods are called on the loop.
type Handler interface {
	// LinkUp says that a guest driver is there (again) and that ep accepts
	// frames with ep.Caps(). fresh is true when the guest has started anew
	// (boot, reboot, new frontend): flows of the earlier guest must be reset,
	// where GuestGone has not said so already.
	LinkUp(ep Endpoint, fresh bool)

	// GuestGone says, while the link is down, that the guest which was there will
	// not come back: it was reset, or its frontend has left. Its flows end now,
	// rather than when another guest comes.
	GuestGone()

	// LinkDown says that the guest takes no frames until the next LinkUp.
	// Flows are kept: it may be a pause or a migration.
	LinkDown()

	// Frames takes a batch of frames from the guest. Their memory is given back
	// to the guest when Frames returns.
	Frames(batch []Frame)

	// Writable says that the guest has posted buffers after a Reserve that came
	// back short.
	Writable()
}

// Send sends one frame made of header (copied) and payload (copied). It reports
// false, and nothing is sent, when the guest has no room.
func Send(ep Endpoint, header, payload []byte, off Offload) bool {
	slots := ep.Reserve(len(header), len(payload), 1)
	if len(slots) == 0 {
		return false
	}
	s := &slots[0]
	copy(s.Header, header)
	for _, seg := range s.Payload {
		payload = payload[copy(seg, payload):]
		s.Used += len(seg)
	}
	s.Off = off
	ep.Commit(1)
	return true
}
