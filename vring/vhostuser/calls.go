package vhostuser

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/vring/guestmem"
)

func (f *Frontend) GetFeatures() (uint64, error)         { return f.askU64(MsgGetFeatures) }
func (f *Frontend) SetFeatures(v uint64) error           { return f.sendU64(MsgSetFeatures, v) }
func (f *Frontend) GetProtocolFeatures() (uint64, error) { return f.askU64(MsgGetProtocolFeatures) }
func (f *Frontend) SetProtocolFeatures(v uint64) error   { return f.sendU64(MsgSetProtocolFeatures, v) }
func (f *Frontend) SetOwner() error                      { return f.Send(MsgSetOwner, nil) }
func (f *Frontend) ResetOwner() error                    { return f.Send(MsgResetOwner, nil) }
func (f *Frontend) ResetDevice() error                   { return f.Send(MsgResetDevice, nil) }
func (f *Frontend) GetQueueNum() (uint64, error)         { return f.askU64(MsgGetQueueNum) }
func (f *Frontend) GetMaxMemSlots() (uint64, error)      { return f.askU64(MsgGetMaxMemSlots) }
func (f *Frontend) SetStatus(v uint8) error              { return f.sendU64(MsgSetStatus, uint64(v)) }
func (f *Frontend) GetStatus() (uint64, error)           { return f.askU64(MsgGetStatus) }
func (f *Frontend) NetSetMTU(mtu uint16) error           { return f.sendU64(MsgNetSetMTU, uint64(mtu)) }
func (f *Frontend) SetVringNum(i int, n uint32) error {
	return f.sendState(MsgSetVringNum, uint32(i), n)
}
func (f *Frontend) SetVringBase(i int, base uint16) error {
	return f.sendState(MsgSetVringBase, uint32(i), uint32(base))
}
func (f *Frontend) SetVringAddr(a VringAddr) error { return f.Send(MsgSetVringAddr, a.append(nil)) }
func (f *Frontend) SetLogFD(fd int) error          { return f.Send(MsgSetLogFD, nil, fd) }
func (f *Frontend) SetVringKick(i, fd int) error   { return f.sendEvent(MsgSetVringKick, i, fd) }
func (f *Frontend) SetVringCall(i, fd int) error   { return f.sendEvent(MsgSetVringCall, i, fd) }
func (f *Frontend) SetVringErr(i, fd int) error    { return f.sendEvent(MsgSetVringErr, i, fd) }

// SetVringEnable switches ring i.
func (f *Frontend) SetVringEnable(i int, on bool) error {
	n := uint32(0)
	if on {
		n = 1
	}
	return f.sendState(MsgSetVringEnable, uint32(i), n)
}

// sendEvent sends a descriptor for ring i, or with fd < 0 the flag that there is
// none.
func (f *Frontend) sendEvent(r Request, i, fd int) error {
	if fd < 0 {
		return f.sendU64(r, uint64(i)|vringNoFD)
	}
	return f.sendU64(r, uint64(i), fd)
}

// GetVringBase stops ring i and returns its next avail index.
func (f *Frontend) GetVringBase(i int) (uint16, error) {
	p, err := f.Ask(MsgGetVringBase, vringState(uint32(i), 0))
	if err != nil {
		return 0, err
	}
	if len(p) != 8 || order.Uint32(p) != uint32(i) {
		return 0, fmt.Errorf("vhostuser: reply to GET_VRING_BASE is %x", p)
	}
	return uint16(order.Uint32(p[4:])), nil
}

// SetMemTable shares guest memory. The regions' descriptors stay the caller's.
func (f *Frontend) SetMemTable(rs []guestmem.Region) error {
	p := order.AppendUint32(nil, uint32(len(rs)))
	p = order.AppendUint32(p, 0)
	var fds []int
	for _, r := range rs {
		p = appendRegion(p, r)
		fds = append(fds, r.FD)
	}
	return f.Send(MsgSetMemTable, p, fds...)
}

func (f *Frontend) AddMemReg(r guestmem.Region) error {
	return f.Send(MsgAddMemReg, appendRegion(make([]byte, 8), r), r.FD)
}

// RemMemReg takes a region back; its descriptor is not sent.
func (f *Frontend) RemMemReg(r guestmem.Region) error {
	return f.Send(MsgRemMemReg, appendRegion(make([]byte, 8), r))
}

// SendRARP asks for an announcement of mac.
func (f *Frontend) SendRARP(mac [6]byte) error {
	return f.Send(MsgSendRARP, append(mac[:], 0, 0))
}

// GetConfig reads n bytes of config space.
func (f *Frontend) GetConfig(off, n int) ([]byte, error) {
	p, err := f.Ask(MsgGetConfig, configPayload(off, 0, make([]byte, n)))
	if err != nil {
		return nil, err
	}
	if len(p) == 0 {
		return nil, &NackError{MsgGetConfig, 1}
	}
	if len(p) != configHead+n {
		return nil, fmt.Errorf("vhostuser: %d bytes of config, asked for %d", len(p)-configHead, n)
	}
	return p[configHead:], nil
}

// SetConfig writes config space; flags 0: the guest did, 1: live migration.
func (f *Frontend) SetConfig(off int, flags uint32, data []byte) error {
	return f.Send(MsgSetConfig, configPayload(off, flags, data))
}

func configPayload(off int, flags uint32, data []byte) []byte {
	p := order.AppendUint32(nil, uint32(off))
	p = order.AppendUint32(p, uint32(len(data)))
	p = order.AppendUint32(p, flags)
	return append(p, data...)
}

// SetLogBase shares the dirty log: size bytes of fd from offset.
func (f *Frontend) SetLogBase(fd int, size, offset uint64) error {
	p := order.AppendUint64(order.AppendUint64(nil, size), offset)
	p, err := f.Ask(MsgSetLogBase, p, fd)
	if err != nil {
		return err
	}
	return ack(MsgSetLogBase, p)
}

// SetBackendReqFD opens the channel for the backend's own requests.
func (f *Frontend) SetBackendReqFD() error {
	p, err := unix.Socketpair(unix.AF_UNIX, unix.SOCK_STREAM|unix.SOCK_CLOEXEC, 0)
	if err != nil {
		return fmt.Errorf("vhostuser: socketpair: %w", err)
	}
	defer unix.Close(p[1])
	tv := unix.NsecToTimeval(ReplyTimeout.Nanoseconds())
	if err := unix.SetsockoptTimeval(p[0], unix.SOL_SOCKET, unix.SO_RCVTIMEO, &tv); err != nil {
		unix.Close(p[0])
		return err
	}
	if f.req >= 0 {
		unix.Close(f.req)
	}
	f.req = p[0]
	return f.Send(MsgSetBackendReqFD, nil, p[1])
}

// ReadBackendRequest reads one request of the backend, and acknowledges it if
// the backend wants that.
func (f *Frontend) ReadBackendRequest() (BackendRequest, []byte, error) {
	h, p, err := readMessage(f.req)
	if err != nil {
		return 0, nil, err
	}
	if h.Flags&flagNeedReply != 0 {
		r := Header{Request: h.Request, Flags: version | flagReply, Size: 8}
		_, err = unix.Write(f.req, order.AppendUint64(r.Append(nil), 0))
	}
	return BackendRequest(h.Request), p, err
}
