package vhostuser

import "fmt"

// request is what the protocol says about one message: how long its payload is,
// how many descriptors go with it, what has to be negotiated, whether it has a
// reply of its own. requests is the one place that says so.
type request struct {
	name     string
	min, max int    // payload bytes
	step     int    // between min and max in steps of; 0: 1
	fdMin    int    // descriptors
	fdMax    int    //
	feature  uint64 // protocol feature that must have been acknowledged
	replies  bool   // has a reply of its own, so NEED_REPLY changes nothing
	handle   func(*backend, *message) error
}

var requests = [maxRequest + 1]request{
	MsgGetFeatures:         {name: "GET_FEATURES", replies: true, handle: (*backend).getFeatures},
	MsgSetFeatures:         {name: "SET_FEATURES", min: 8, max: 8, handle: (*backend).setFeatures},
	MsgSetOwner:            {name: "SET_OWNER", handle: (*backend).setOwner},
	MsgResetOwner:          {name: "RESET_OWNER", handle: (*backend).resetOwner},
	MsgSetMemTable:         {name: "SET_MEM_TABLE", min: regionsHead, max: regionsHead + maxFDs*regionSize, step: regionSize, fdMax: maxFDs, handle: (*backend).setMemTable},
	MsgSetLogBase:          {name: "SET_LOG_BASE", min: 16, max: 16, fdMin: 1, fdMax: 1, feature: ProtocolFLogShmfd, replies: true, handle: (*backend).setLogBase},
	MsgSetLogFD:            {name: "SET_LOG_FD", max: 8, step: 8, fdMin: 1, fdMax: 1, handle: (*backend).setLogFD},
	MsgSetVringNum:         {name: "SET_VRING_NUM", min: 8, max: 8, handle: (*backend).setVringNum},
	MsgSetVringAddr:        {name: "SET_VRING_ADDR", min: vringAddrLen, max: vringAddrLen, handle: (*backend).setVringAddr},
	MsgSetVringBase:        {name: "SET_VRING_BASE", min: 8, max: 8, handle: (*backend).setVringBase},
	MsgGetVringBase:        {name: "GET_VRING_BASE", min: 8, max: 8, replies: true, handle: (*backend).getVringBase},
	MsgSetVringKick:        {name: "SET_VRING_KICK", min: 8, max: 8, fdMax: 1, handle: (*backend).setVringKick},
	MsgSetVringCall:        {name: "SET_VRING_CALL", min: 8, max: 8, fdMax: 1, handle: (*backend).setVringCall},
	MsgSetVringErr:         {name: "SET_VRING_ERR", min: 8, max: 8, fdMax: 1, handle: (*backend).setVringErr},
	MsgGetProtocolFeatures: {name: "GET_PROTOCOL_FEATURES", replies: true, handle: (*backend).getProtocolFeatures},
	MsgSetProtocolFeatures: {name: "SET_PROTOCOL_FEATURES", min: 8, max: 8, handle: (*backend).setProtocolFeatures},
	MsgGetQueueNum:         {name: "GET_QUEUE_NUM", replies: true, handle: (*backend).getQueueNum},
	MsgSetVringEnable:      {name: "SET_VRING_ENABLE", min: 8, max: 8, handle: (*backend).setVringEnable},
	MsgSendRARP:            {name: "SEND_RARP", min: 8, max: 8, feature: ProtocolFRARP, handle: (*backend).sendRARP},
	MsgNetSetMTU:           {name: "NET_SET_MTU", min: 8, max: 8, feature: ProtocolFNetMTU, handle: (*backend).netSetMTU},
	MsgSetBackendReqFD:     {name: "SET_BACKEND_REQ_FD", max: 8, step: 8, fdMin: 1, fdMax: 1, feature: ProtocolFBackendReq, handle: (*backend).setBackendReqFD},
	MsgGetConfig:           {name: "GET_CONFIG", min: configHead, max: configHead + maxConfig, feature: ProtocolFConfig, replies: true, handle: (*backend).getConfig},
	MsgSetConfig:           {name: "SET_CONFIG", min: configHead, max: configHead + maxConfig, feature: ProtocolFConfig, handle: (*backend).setConfig},
	MsgResetDevice:         {name: "RESET_DEVICE", feature: ProtocolFResetDevice, handle: (*backend).resetDevice},
	MsgGetMaxMemSlots:      {name: "GET_MAX_MEM_SLOTS", feature: ProtocolFConfigureMemSlots, replies: true, handle: (*backend).getMaxMemSlots},
	MsgAddMemReg:           {name: "ADD_MEM_REG", min: 8 + regionSize, max: 8 + regionSize, fdMin: 1, fdMax: 1, feature: ProtocolFConfigureMemSlots, handle: (*backend).addMemReg},
	// Some frontends send a descriptor with REM_MEM_REG; it is closed unused.
	MsgRemMemReg: {name: "REM_MEM_REG", min: 8 + regionSize, max: 8 + regionSize, fdMax: 1, feature: ProtocolFConfigureMemSlots, handle: (*backend).remMemReg},
	MsgSetStatus: {name: "SET_STATUS", min: 8, max: 8, feature: ProtocolFStatus, handle: (*backend).setStatus},
	MsgGetStatus: {name: "GET_STATUS", feature: ProtocolFStatus, replies: true, handle: (*backend).getStatus},
}

// offerable are the protocol features that the table above has the messages of.
const offerable = ProtocolFMQ | ProtocolFLogShmfd | ProtocolFRARP | ProtocolFReplyAck | ProtocolFNetMTU |
	ProtocolFBackendReq | ProtocolFConfig | ProtocolFResetDevice | ProtocolFConfigureMemSlots |
	ProtocolFStatus | ProtocolFGPAAddresses

func requestFor(r Request) *request {
	if r > maxRequest || requests[r].handle == nil {
		return nil
	}
	return &requests[r]
}

// The outcomes of a message other than success (nil).
type (
	// refusal is a NACK: the request is well formed but cannot be granted;
	// nothing has changed. With REPLY_ACK the frontend hears of it.
	refusal struct{ error }
	// malformed is a message that is not what its type says, or of a type that
	// is not known here. A NACK if the frontend waits for one; without that the
	// connection ends, since frontend and backend no longer agree on anything.
	malformed struct{ error }
	// hostile ends the connection.
	hostile struct{ error }
)

func refusef(format string, a ...any) error { return refusal{fmt.Errorf(format, a...)} }

// message is one request being handled. payload and fds are valid until the
// handler returns; a handler keeps a descriptor by take, the others are closed.
type message struct {
	Header
	payload []byte
	fds     []int
	reply   []byte // payload of the reply, capacity for every message's
	replied bool
}

func (m *message) u64() uint64 { return order.Uint64(m.payload) }

// state decodes a vring state description.
func (m *message) state() (index, num uint32) {
	return order.Uint32(m.payload), order.Uint32(m.payload[4:])
}

func (m *message) take(i int) int {
	fd := m.fds[i]
	m.fds[i] = -1
	return fd
}

func (m *message) answer(v uint64) error {
	m.reply, m.replied = order.AppendUint64(m.reply[:0], v), true
	return nil
}

// dispatch checks m against the table and hands it to its handler.
func (b *backend) dispatch(m *message) error {
	r := requestFor(m.Request)
	if r == nil {
		if len(m.fds) != 0 {
			return hostile{fmt.Errorf("%d descriptors with an unknown request", len(m.fds))}
		}
		return malformed{fmt.Errorf("not supported")}
	}
	switch n := len(m.payload); {
	case len(m.fds) < r.fdMin || len(m.fds) > r.fdMax:
		return hostile{fmt.Errorf("%d descriptors", len(m.fds))}
	case n < r.min || n > r.max || (n-r.min)%max(r.step, 1) != 0:
		return malformed{fmt.Errorf("payload of %d bytes", n)}
	case r.feature&^b.protocol != 0:
		return malformed{fmt.Errorf("needs protocol feature %s", ProtocolFeatureNames(r.feature))}
	}
	return r.handle(b, m)
}

// wantsAck tells whether the frontend waits for the outcome of m (vhost-user,
// "REPLY_ACK").
func (b *backend) wantsAck(m *message) bool {
	r := requestFor(m.Request)
	return m.Flags&flagNeedReply != 0 && b.protocol&ProtocolFReplyAck != 0 && (r == nil || !r.replies)
}
