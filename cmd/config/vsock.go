package config

import (
	"math/bits"
	"strconv"
	"strings"

	"guestwire/vring/eventloop"
	"guestwire/vring/unixsock"
	"guestwire/vsockbridge"
	"guestwire/vsockbridge/hostside"
	"guestwire/vsockbridge/packet"
)

// Limits of a vsock device.
const (
	DefaultTxBuffer = vsockbridge.DefaultBufAlloc // bytes under way from the guest on one connection
	MinTxBuffer     = 64 << 10
	MaxTxBuffer     = 64 << 20
	DefaultMaxConns = vsockbridge.DefaultMaxConns
	MaxConns        = 1 << 15
	MaxQueueSize    = 1 << 15 // virtio 1.3, 2.7
	MaxGroups       = 16
)

// Vsock is the complete, validated configuration of one guest's vsock device.
type Vsock struct {
	SocketPath string // or FD
	FD         int    // -1 with SocketPath
	Client     bool
	CID        uint64
	Groups     []string // sibling groups; guests that share one reach each other
	TxBuffer   uint32
	MaxConns   int
	Poll       eventloop.Poll
	Withhold   VsockWithhold
	Host       hostside.Config // without Lookup and Log, which the worker has
}

// ResolveVsock validates o.
func ResolveVsock(o *VsockOptions) (*Vsock, error) {
	v := &Vsock{SocketPath: o.SocketPath, FD: o.FD, Client: o.Client, Withhold: o.Withhold}
	for _, step := range []func(*VsockOptions) error{
		func(o *VsockOptions) (err error) { v.Poll, err = poll(o.Poll); return err },
		func(o *VsockOptions) error { return attachment(o.SocketPath, o.FD, o.Client) },
		v.cid, v.groups, v.uds, v.rules, v.limits,
	} {
		if err := step(o); err != nil {
			return nil, err
		}
	}
	return v, nil
}

func (v *Vsock) cid(o *VsockOptions) error {
	if o.GuestCID == 0 {
		return wrong("--guest-cid", "", "say which address the guest has: a number from 3 on, of which no other guest is told")
	}
	if err := packet.CheckCID(uint64(o.GuestCID)); err != nil {
		return wrong("--guest-cid", strconv.FormatInt(o.GuestCID, 10), "%v", err)
	}
	v.CID = uint64(o.GuestCID)
	v.Host.CID = v.CID
	return nil
}

// groups reads the names, of which one value may hold several: a+b
func (v *Vsock) groups(o *VsockOptions) error {
	for _, s := range o.Groups {
		for _, name := range strings.Split(s, "+") {
			if err := checkName(name); err != nil {
				return wrong("--groups", s, "write names with '+' between them, like web+db")
			}
			v.Groups = append(v.Groups, name)
		}
	}
	if len(v.Groups) > MaxGroups {
		return wrong("--groups", strings.Join(v.Groups, "+"), "%d groups are too many: a guest is in %d at most", len(v.Groups), MaxGroups)
	}
	return nil
}

// uds reads --uds-path and what belongs to it.
func (v *Vsock) uds(o *VsockOptions) (err error) {
	h := &v.Host
	h.UDSPath = o.UDSPath
	if most := unixsock.MaxPath - len("_4294967295"); len(h.UDSPath) > most {
		return wrong("--uds-path", h.UDSPath, "has %d bytes, at most %d leave room for _PORT behind it: choose a shorter one", len(h.UDSPath), most)
	}
	for _, f := range []struct {
		option, value string
		read          func(string) error
	}{
		{"--ok-line", o.OKLine, func(s string) (err error) { h.OKLine, err = hostside.ParseOKLine(s); return err }},
		{"--wait", o.Wait, func(s string) (err error) { h.Wait, err = hostside.ParseWait(s); return err }},
		{"--uds-mode", o.UDSMode, func(s string) (err error) { h.File.Mode, err = hostside.ParseMode(s); return err }},
		{"--uds-owner", o.UDSOwner, func(s string) (err error) { h.File.UID, h.File.GID, err = hostside.ParseOwner(s); return err }},
	} {
		switch {
		case f.value == "":
		case h.UDSPath == "":
			return wrong(f.option, f.value, "is about --uds-path: give that too")
		default:
			if err := f.read(f.value); err != nil {
				return wrong(f.option, f.value, "%v", err)
			}
		}
	}
	return nil
}

// rules reads --listen and --connect.
func (v *Vsock) rules(o *VsockOptions) error {
	for _, s := range o.Listen {
		r, err := hostside.ParseListen(s)
		if err != nil {
			return wrong("--listen", s, "%v", err)
		}
		v.Host.Listen = append(v.Host.Listen, r)
	}
	for _, s := range o.Connect {
		r, err := hostside.ParseConnect(s)
		if err != nil {
			return wrong("--connect", s, "%v", err)
		}
		for _, other := range v.Host.Connect {
			if other.Port == r.Port && other.Type == r.Type {
				return wrong("--connect", s, "port %d leads to %v already: give it one way", r.Port, other.Host)
			}
		}
		v.Host.Connect = append(v.Host.Connect, r)
	}
	if err := v.forward(o); err != nil {
		return err
	}
	h := &v.Host
	if h.UDSPath == "" && h.ForwardCID == 0 && len(h.Listen)+len(h.Connect)+len(v.Groups) == 0 {
		return wrong("--uds-path", "", "say whom the guest shall meet: --uds-path PATH, --listen and --connect for single ports, --groups for other guests")
	}
	return nil
}

// forward reads --forward-cid and --forward-listen: rules for the host kernel's
// vsock without a change of ports.
func (v *Vsock) forward(o *VsockOptions) error {
	if o.ForwardCID < 0 || o.ForwardCID >= int64(packet.AnyCID) {
		return wrong("--forward-cid", strconv.FormatInt(o.ForwardCID, 10), "use a CID of the host kernel's vsock: 1 for this host, 3 and more for its guests")
	}
	v.Host.ForwardCID = uint32(o.ForwardCID)
	if o.ForwardListen == "" {
		return nil
	}
	for _, port := range strings.Split(o.ForwardListen, "+") {
		r, err := hostside.ParseListen("vsock:" + port + "=vsock:" + port)
		if err != nil || r.Host.Port != r.Port {
			return wrong("--forward-listen", o.ForwardListen, "write vsock ports with '+' between them, like 9001+9002")
		}
		v.Host.Listen = append(v.Host.Listen, r)
	}
	return nil
}

func (v *Vsock) limits(o *VsockOptions) error {
	v.TxBuffer, v.MaxConns = DefaultTxBuffer, DefaultMaxConns
	if o.TxBufferSize != 0 {
		if o.TxBufferSize < MinTxBuffer || o.TxBufferSize > MaxTxBuffer {
			return wrong("--tx-buffer-size", strconv.FormatInt(o.TxBufferSize, 10), "use %d to %d bytes", MinTxBuffer, MaxTxBuffer)
		}
		v.TxBuffer = uint32(o.TxBufferSize)
	}
	if o.MaxConnections != 0 {
		if o.MaxConnections < 1 || o.MaxConnections > MaxConns {
			return wrong("--max-connections", itoa(o.MaxConnections), "use 1 to %d", MaxConns)
		}
		v.MaxConns = o.MaxConnections
	}
	if n := o.QueueSize; n < 0 || n > MaxQueueSize || bits.OnesCount(uint(n)) > 1 {
		return wrong("--queue-size", itoa(n), "use a power of two up to %d (the frontend chooses its size below that)", MaxQueueSize)
	}
	return nil
}
