package wire

// EtherTypes that Parse knows.
const (
	EtherIPv4 = 0x0800
	EtherARP  = 0x0806
	EtherIPv6 = 0x86dd
	etherVLAN = 0x8100 // 802.1Q
	etherQinQ = 0x88a8 // 802.1ad
)

// IP protocol numbers.
const (
	ProtoICMP   = 1
	ProtoTCP    = 6
	ProtoUDP    = 17
	ProtoICMPv6 = 58

	ProtoIPv6Fragment = 44 // the IPv6 fragment header
)

// Header lengths in bytes, without options.
const (
	EthLen      = 14
	IPv4Len     = 20
	IPv6Len     = 40
	IPv6FragLen = 8 // the IPv6 fragment header
	TCPLen      = 20
	UDPLen      = 8
	ICMPLen     = 8
)

// Offsets of the checksum field from the start of an L4 header.
const (
	TCPCsumOff  = 16
	UDPCsumOff  = 6
	ICMPCsumOff = 2 // ICMP and ICMPv6
)

// HeadSize is how much of a frame Parse copies, in bytes.
const HeadSize = 128

// Flags are the TCP control bits.
type Flags uint8

const (
	FIN Flags = 1 << iota
	SYN
	RST
	PSH
	ACK
	URG
	ECE
	CWR
)

// Has says whether all of m are set.
func (f Flags) Has(m Flags) bool { return f&m == m }

// TCPHeader is a parsed TCP header. The urgent pointer is not kept: bytes are
// taken in band whatever it says.
type TCPHeader struct {
	Seq, Ack      Seq
	Flags         Flags
	Window        uint16 // as sent, unscaled
	MSS           uint16 // 0: no option
	WScale        int8   // as sent, not clamped to 14; -1: no option
	SACKPermitted bool
	TS            bool // timestamps present
	TSVal, TSEcr  uint32
	NSACK         uint8
	SACK          [4][2]Seq // left and right edge of NSACK blocks
}

// Packet is the result of Parse: private copies of every header field, never
// re-read from the guest. Fields of layers that the packet does not have keep
// the values of an earlier packet: look at EtherType, Frag and Proto first.
type Packet struct {
	EthSrc, EthDst MAC
	EtherType      uint16

	// With EtherIPv4 and EtherIPv6.
	V6       bool
	Proto    uint8 // L4 protocol; with Frag on IPv6, the fragment header's next header
	TTL, TOS uint8 // hop limit and traffic class on IPv6
	Src, Dst Addr
	ID       uint32 // IPv4 identification, 0 on IPv6

	// A fragment (neither offset 0 nor the end, or one of both) has only the
	// fields above and these; L4 fields come after reassembly.
	Frag      bool
	MoreFrags bool
	DontFrag  bool   // IPv4 DF; set on IPv6
	FragOff   uint16 // bytes, a multiple of 8
	FragID    uint32

	// With Proto TCP and UDP. ICMP and ICMPv6 echo: SrcPort is the identifier.
	SrcPort, DstPort uint16

	L3Len      int // IPv4 header with options, IPv6 header with extension headers
	L4Off      int // bytes from the start of the frame; fragments: the fragment's data
	PayloadOff int // behind the L4 header; L4Off for fragments and unknown protocols
	PayloadLen int // without Ethernet padding

	TCP TCPHeader

	ICMPType, ICMPCode uint8
	ICMPSeq            uint16 // echo

	HeadLen int            // valid bytes of Head
	Head    [HeadSize]byte // the first bytes of the frame, copied once
}

// IsEcho says whether p is an ICMP or ICMPv6 echo request.
func (p *Packet) IsEcho() bool {
	return p.Proto == ProtoICMP && !p.V6 && p.ICMPType == ICMPEchoRequest ||
		p.Proto == ProtoICMPv6 && p.V6 && p.ICMPType == ICMPv6EchoRequest
}

// L4Len is the length of L4 header and payload in bytes.
func (p *Packet) L4Len() int { return p.PayloadOff + p.PayloadLen - p.L4Off }

// End is the offset behind the last byte of the packet in its frame; what
// follows is Ethernet padding.
func (p *Packet) End() int { return p.PayloadOff + p.PayloadLen }

// ICMP types (RFC 792) and ICMPv6 types (RFC 4443).
const (
	ICMPEchoReply       = 0
	ICMPUnreachable     = 3
	ICMPEchoRequest     = 8
	ICMPTimeExceeded    = 11
	ICMPParamProblem    = 12
	ICMPv6Unreachable   = 1
	ICMPv6TooBig        = 2
	ICMPv6TimeExceeded  = 3
	ICMPv6ParamProblem  = 4
	ICMPv6EchoRequest   = 128
	ICMPv6EchoReply     = 129
	ICMPv6RouterSolicit = 133
	ICMPv6RouterAdvert  = 134
	ICMPv6NeighSolicit  = 135
	ICMPv6NeighAdvert   = 136
)
