package packet

import "encoding/binary"

// Size is the length of a header in bytes.
const Size = 44

// MaxPayload is the most payload, in bytes, that one packet has: Linux drivers
// send no more and count on a device that keeps to it too.
const MaxPayload = 64 << 10

// Type is the kind of a socket (virtio 1.3, 5.10.6.1).
type Type uint16

const (
	Stream    Type = 1
	SeqPacket Type = 2
)

func (t Type) String() string {
	switch t {
	case Stream:
		return "stream"
	case SeqPacket:
		return "seqpacket"
	}
	return "unknown type"
}

// Op is what a packet is for (virtio 1.3, 5.10.6).
type Op uint16

const (
	Request       Op = 1 // connect
	Response      Op = 2 // accept
	Reset         Op = 3 // refuse, abort, or the end of an orderly shutdown
	Shutdown      Op = 4 // Flags says of what
	RW            Op = 5 // payload
	CreditUpdate  Op = 6 // nothing but BufAlloc and FwdCnt
	CreditRequest Op = 7 // asks for a CreditUpdate
)

var opNames = [...]string{Request: "request", Response: "response", Reset: "reset", Shutdown: "shutdown",
	RW: "rw", CreditUpdate: "credit-update", CreditRequest: "credit-request"}

// Known says whether the operation has a meaning.
func (o Op) Known() bool { return o >= Request && o <= CreditRequest }

func (o Op) String() string {
	if o.Known() {
		return opNames[o]
	}
	return "unknown op"
}

// Flags of a Shutdown: hints that are never taken back (5.10.6.6).
const (
	ShutdownReceive uint32 = 1 << iota // the sender receives no more
	ShutdownSend                       // the sender sends no more
	ShutdownBoth    = ShutdownReceive | ShutdownSend
)

// Flags of an RW of a SeqPacket connection (5.10.6.7).
const (
	EndOfMessage uint32 = 1 << iota // last packet of a message
	EndOfRecord                     // MSG_EOR was set by who sent it
)

// Header is one packet header, a private copy.
type Header struct {
	SrcCID, DstCID   uint64
	SrcPort, DstPort uint32
	Len              uint32 // payload bytes behind the header
	Type             Type
	Op               Op
	Flags            uint32
	BufAlloc         uint32 // bytes that the sender of the packet has for payload towards it
	FwdCnt           uint32 // payload bytes that have left that room again, modulo 2^32
}

// Parse reads a header. It judges nothing.
func Parse(b *[Size]byte) Header {
	le := binary.LittleEndian
	return Header{
		SrcCID: le.Uint64(b[0:]), DstCID: le.Uint64(b[8:]),
		SrcPort: le.Uint32(b[16:]), DstPort: le.Uint32(b[20:]),
		Len:  le.Uint32(b[24:]),
		Type: Type(le.Uint16(b[28:])), Op: Op(le.Uint16(b[30:])),
		Flags:    le.Uint32(b[32:]),
		BufAlloc: le.Uint32(b[36:]), FwdCnt: le.Uint32(b[40:]),
	}
}

// Put writes the header.
func (h *Header) Put(b *[Size]byte) {
	le := binary.LittleEndian
	le.PutUint64(b[0:], h.SrcCID)
	le.PutUint64(b[8:], h.DstCID)
	le.PutUint32(b[16:], h.SrcPort)
	le.PutUint32(b[20:], h.DstPort)
	le.PutUint32(b[24:], h.Len)
	le.PutUint16(b[28:], uint16(h.Type))
	le.PutUint16(b[30:], uint16(h.Op))
	le.PutUint32(b[32:], h.Flags)
	le.PutUint32(b[36:], h.BufAlloc)
	le.PutUint32(b[40:], h.FwdCnt)
}
