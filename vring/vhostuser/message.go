package vhostuser

import (
	"encoding/binary"
	"errors"
	"fmt"

	"guestwire/vring/guestmem"
)

// order is the byte order of every message: the machine's own, since both ends
// share its memory (vhost-user, "Message Specification").
var order = binary.NativeEndian

const (
	headerSize = 12
	maxPayload = 4096 // far above any message we know; more is a lost framing
	maxFDs     = 8    // most descriptors that one message carries, SET_MEM_TABLE's
	maxConfig  = 256  // bytes of config space in one message

	version       = 1
	flagVersion   = 0x3
	flagReply     = 1 << 2
	flagNeedReply = 1 << 3
	flagKnown     = flagVersion | flagReply | flagNeedReply

	regionSize   = 32
	regionsHead  = 8
	vringAddrLen = 40
	configHead   = 12

	vringIndexMask = 0xff
	vringNoFD      = 1 << 8
	vringAddrLog   = 1 << 0 // VHOST_VRING_F_LOG
)

// Request is the type of a message from frontend to backend.
type Request uint32

const (
	MsgGetFeatures         Request = 1
	MsgSetFeatures         Request = 2
	MsgSetOwner            Request = 3
	MsgResetOwner          Request = 4
	MsgSetMemTable         Request = 5
	MsgSetLogBase          Request = 6
	MsgSetLogFD            Request = 7
	MsgSetVringNum         Request = 8
	MsgSetVringAddr        Request = 9
	MsgSetVringBase        Request = 10
	MsgGetVringBase        Request = 11
	MsgSetVringKick        Request = 12
	MsgSetVringCall        Request = 13
	MsgSetVringErr         Request = 14
	MsgGetProtocolFeatures Request = 15
	MsgSetProtocolFeatures Request = 16
	MsgGetQueueNum         Request = 17
	MsgSetVringEnable      Request = 18
	MsgSendRARP            Request = 19
	MsgNetSetMTU           Request = 20
	MsgSetBackendReqFD     Request = 21
	MsgGetConfig           Request = 24
	MsgSetConfig           Request = 25
	MsgGetInflightFD       Request = 31 // not served
	MsgSetInflightFD       Request = 32 // not served
	MsgResetDevice         Request = 34
	MsgGetMaxMemSlots      Request = 36
	MsgAddMemReg           Request = 37
	MsgRemMemReg           Request = 38
	MsgSetStatus           Request = 39
	MsgGetStatus           Request = 40
	MsgSetDeviceStateFD    Request = 42 // not served

	maxRequest = 44 // GET_SHMEM_CONFIG, the last id assigned
)

// BackendRequest is the type of a message from backend to frontend, on the
// channel of SET_BACKEND_REQ_FD.
type BackendRequest uint32

const BackendConfigChange BackendRequest = 2

func (r Request) String() string {
	if s := requestFor(r); s != nil {
		return s.name
	}
	return fmt.Sprintf("request %d", uint32(r))
}

// Header starts every message.
type Header struct {
	Request Request
	Flags   uint32
	Size    uint32 // of the payload
}

func parseHeader(b []byte) Header {
	return Header{Request(order.Uint32(b)), order.Uint32(b[4:]), order.Uint32(b[8:])}
}

// Append appends the wire form of h to b.
func (h Header) Append(b []byte) []byte {
	b = order.AppendUint32(b, uint32(h.Request))
	b = order.AppendUint32(b, h.Flags)
	return order.AppendUint32(b, h.Size)
}

// check finds what makes the framing of a request untrustworthy.
func (h Header) check() error {
	switch {
	case h.Flags&flagVersion != version:
		return fmt.Errorf("%v: version %d", h.Request, h.Flags&flagVersion)
	case h.Flags&flagReply != 0:
		return fmt.Errorf("%v: a reply where a request belongs", h.Request)
	case h.Flags&^flagKnown != 0:
		return fmt.Errorf("%v: reserved flags %#x", h.Request, h.Flags)
	case h.Size > maxPayload:
		return fmt.Errorf("%v: payload of %d bytes", h.Request, h.Size)
	}
	return nil
}

// VringAddr is the payload of SET_VRING_ADDR. Addresses are the frontend's own
// ("user addresses"), or guest addresses with ProtocolFGPAAddresses.
type VringAddr struct {
	Index, Flags      uint32
	Desc, Used, Avail uint64
	Log               uint64 // guest address of the used ring
}

func parseVringAddr(b []byte) VringAddr {
	return VringAddr{order.Uint32(b), order.Uint32(b[4:]), order.Uint64(b[8:]), order.Uint64(b[16:]),
		order.Uint64(b[24:]), order.Uint64(b[32:])}
}

func (a VringAddr) append(b []byte) []byte {
	b = order.AppendUint32(b, a.Index)
	b = order.AppendUint32(b, a.Flags)
	for _, v := range [...]uint64{a.Desc, a.Used, a.Avail, a.Log} {
		b = order.AppendUint64(b, v)
	}
	return b
}

func parseRegion(b []byte) guestmem.Region {
	return guestmem.Region{GPA: order.Uint64(b), Size: order.Uint64(b[8:]), UVA: order.Uint64(b[16:]),
		MmapOffset: order.Uint64(b[24:]), FD: -1}
}

func appendRegion(b []byte, r guestmem.Region) []byte {
	for _, v := range [...]uint64{r.GPA, r.Size, r.UVA, r.MmapOffset} {
		b = order.AppendUint64(b, v)
	}
	return b
}

// parseMemTable decodes SET_MEM_TABLE's payload. Every region goes with one
// descriptor, in order.
func parseMemTable(b []byte, fds []int) ([]guestmem.Region, error) {
	n := order.Uint32(b)
	switch {
	case n == 0 || n > maxFDs:
		return nil, fmt.Errorf("%d regions", n)
	case uint64(len(b)) != regionsHead+uint64(n)*regionSize:
		return nil, fmt.Errorf("%d bytes for %d regions", len(b), n)
	case int(n) != len(fds):
		return nil, fmt.Errorf("%d descriptors for %d regions", len(fds), n)
	}
	rs := make([]guestmem.Region, n)
	for i := range rs {
		rs[i] = parseRegion(b[regionsHead+i*regionSize:])
		rs[i].FD = fds[i]
	}
	return rs, nil
}

var errConfigSize = errors.New("config size does not match the message")

// parseConfig decodes a config space payload: what it accesses and the bytes.
func parseConfig(b []byte) (off int, flags uint32, data []byte, err error) {
	o, n := order.Uint32(b), order.Uint32(b[4:])
	switch {
	case uint64(len(b)) != configHead+uint64(n):
		return 0, 0, nil, errConfigSize
	case uint64(o)+uint64(n) > maxConfig:
		return 0, 0, nil, fmt.Errorf("config access at %d, %d bytes", o, n)
	}
	return int(o), order.Uint32(b[8:]), b[configHead:], nil
}
