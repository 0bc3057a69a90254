package vhostuser

import (
	"golang.org/x/sys/unix"

	"guestwire/vring/eventloop"
	"guestwire/vring/guestmem"
)

// holdTime is how long no ring starts after a fault of the device. A second one
// within ten seconds would end the loop, and a guest or frontend that causes them
// (by truncating its memory) must not be able to do that.
const holdTime = eventloop.Time(11e9)

// backend is what a session negotiated, and the rings: the protocol without its
// socket. It is reused for the next session.
type backend struct {
	loop *eventloop.Loop
	dev  Device
	logf func(format string, a ...any)

	features uint64 // acknowledged
	protocol uint64 // acknowledged
	status   uint8  // virtio device status
	refused  bool   // the last SET_FEATURES was

	mem   *guestmem.Table
	log   *guestmem.Log
	logFD int
	req   int // backend request channel
	rings []ring

	holdUntil           eventloop.Time
	holdTimer, logTimer eventloop.TimerID
}

const (
	timerHold = iota
	timerLog
)

func (b *backend) init(l *eventloop.Loop, d Device, logf func(string, ...any)) {
	b.loop, b.dev, b.logf = l, d, logf
	b.logFD, b.req = -1, -1
	b.rings = make([]ring, d.Queues())
	for i := range b.rings {
		b.rings[i].init(b, i)
	}
	b.holdTimer = l.Timers().New(b, timerHold)
	b.logTimer = l.Timers().New(b, timerLog)
}

func (b *backend) free() {
	w := b.loop.Timers()
	w.Free(b.holdTimer)
	w.Free(b.logTimer)
	for i := range b.rings {
		if p := b.rings[i].poll; p != 0 {
			w.Free(p)
		}
	}
}

// Expired implements eventloop.Expirer.
func (b *backend) Expired(cookie uint32) {
	if cookie == timerLog {
		b.logTick()
		return
	}
	for i := range b.rings {
		if r := &b.rings[i]; r.state.Phase == Waiting {
			if err := b.try(r); err != nil {
				b.logf("ring %d: %v", i, err)
			}
		}
	}
}

// fault breaks the device's rings after a call into it did not return.
func (b *backend) fault(err error) {
	b.logf("device failed, its rings are broken: %v", err)
	b.holdUntil = b.loop.Now() + holdTime
	b.breakAll()
}

// disconnect returns to the state before the session.
func (b *backend) disconnect() {
	for i := range b.rings {
		b.apply(&b.rings[i], EvReset)
	}
	b.dev.Disconnected()
	for i := range b.rings {
		b.rings[i].close()
	}
	b.mem.Close()
	b.log.Close()
	b.mem, b.log = nil, nil
	b.closeLogFD()
	if b.req >= 0 {
		unix.Close(b.req)
		b.req = -1
	}
	b.features, b.protocol, b.status, b.refused = 0, 0, 0, false
}

// resetGuest tells the device that the guest starts anew.
func (b *backend) resetGuest() {
	for i := range b.rings {
		b.rings[i].prev = 0
	}
	b.dev.Reset()
}

func (b *backend) offered() uint64 {
	return b.dev.Features() | VhostUserFProtocolFeatures | VhostFLogAll
}

func (b *backend) offeredProtocol() uint64 {
	return (b.dev.Protocol() | AlwaysProtocol) & offerable
}

// ringsInUse tells whether rings run, and whether one of them is enabled.
func (b *backend) ringsInUse() (running, enabled bool) {
	for i := range b.rings {
		if s := b.rings[i].state; s.Phase == Running {
			running = true
			enabled = enabled || s.Enabled
		}
	}
	return
}

func (b *backend) getFeatures(m *message) error         { return m.answer(b.offered()) }
func (b *backend) getProtocolFeatures(m *message) error { return m.answer(b.offeredProtocol()) }
func (b *backend) getQueueNum(m *message) error         { return m.answer(b.dev.QueueNum()) }

// setFeatures may come while rings run, but only to switch the dirty log; or
// when all of them are disabled, which is how user mode Linux binds its driver
// again.
func (b *backend) setFeatures(m *message) error {
	v := m.u64()
	b.refused = true
	if extra := v &^ b.offered(); extra != 0 {
		return refusef("not on offer: %s", FeatureNames(extra))
	}
	running, enabled := b.ringsInUse()
	changed := (v ^ b.features) &^ VhostFLogAll
	switch {
	case running && changed != 0 && enabled:
		return refusef("changed while rings run: %s", FeatureNames(changed))
	case running && changed != 0:
		for i := range b.rings {
			b.apply(&b.rings[i], EvGetBase)
		}
		running = false
	}
	b.refused = false
	b.features = v
	if !running {
		b.dev.Negotiated(v)
	}
	b.relogAll()
	if v&VhostUserFProtocolFeatures == 0 {
		// There will be no SET_VRING_ENABLE (vhost-user, "Ring states").
		for i := range b.rings {
			b.apply(&b.rings[i], EvEnable)
		}
	}
	return nil
}

func (b *backend) setProtocolFeatures(m *message) error {
	v := m.u64()
	if extra := v &^ b.offeredProtocol(); extra != 0 {
		return refusef("not on offer: %s", ProtocolFeatureNames(extra))
	}
	if running, _ := b.ringsInUse(); running && v != b.protocol {
		return refusef("changed while rings run: %s", ProtocolFeatureNames(v^b.protocol))
	}
	b.protocol = v
	return nil
}

// setOwner opens a session. The connection does that already, and QEMU sends
// half a dozen requests before it, so nothing depends on it.
func (b *backend) setOwner(*message) error { return nil }

// resetOwner disables the rings and keeps everything else: backends that took
// the deprecated message for more have been the trouble with it.
func (b *backend) resetOwner(*message) error {
	for i := range b.rings {
		b.apply(&b.rings[i], EvDisable)
	}
	return nil
}

// resetDevice is the guest's reset. Memory, protocol features and the call and
// err descriptors stay: QEMU sends those once and RESET_DEVICE often.
func (b *backend) resetDevice(*message) error {
	for i := range b.rings {
		r := &b.rings[i]
		b.apply(r, EvReset)
		r.size, r.addr, r.base, r.broken = 0, VringAddr{}, 0, nil
	}
	b.features, b.status, b.refused = 0, 0, false
	b.resetGuest()
	return nil
}

// setStatus stores the device status: frontends read FEATURES_OK back. Status 0
// stops all rings. Whether it also means a new guest shows when they start
// again: QEMU sends it for a mere pause, too.
func (b *backend) setStatus(m *message) error {
	v := m.u64()
	if v > 0xff {
		return refusef("status %#x", v)
	}
	b.status = uint8(v)
	if b.refused {
		b.status &^= statusFeaturesOK
	}
	if v == 0 {
		for i := range b.rings {
			b.apply(&b.rings[i], EvGetBase)
		}
	}
	return nil
}

const statusFeaturesOK = 8 // virtio 1.3, 2.1

func (b *backend) getStatus(m *message) error { return m.answer(uint64(b.status)) }

func (b *backend) sendRARP(m *message) error {
	b.dev.RARP([6]byte(m.payload[:6]))
	return nil
}

func (b *backend) netSetMTU(m *message) error {
	if v := m.u64(); v > 0xffff || !b.dev.SetMTU(uint16(v)) {
		return refusef("MTU %d", v)
	}
	return nil
}

// getConfig answers a refusal with an empty payload.
func (b *backend) getConfig(m *message) error {
	off, _, data, err := parseConfig(m.payload)
	if err == errConfigSize {
		return malformed{err}
	}
	m.reply, m.replied = m.reply[:0], true
	if err != nil {
		return nil
	}
	r := append(m.reply, m.payload...)
	if b.dev.ReadConfig(r[configHead:configHead+len(data)], off) {
		m.reply = r
	}
	return nil
}

func (b *backend) setConfig(m *message) error {
	off, flags, data, err := parseConfig(m.payload)
	switch {
	case err == errConfigSize:
		return malformed{err}
	case err != nil:
		return refusal{err}
	case flags > 1: // 0: written by the guest, 1: live migration
		return refusef("config flags %#x", flags)
	case !b.dev.WriteConfig(data, off):
		return refusef("config at %d, %d bytes", off, len(data))
	}
	return nil
}

// setBackendReqFD keeps the channel for our own requests. Nothing is ever read
// from it: we ask for no replies.
func (b *backend) setBackendReqFD(m *message) error {
	if err := prepareSocket(m.fds[0]); err != nil {
		return refusal{err}
	}
	if b.req >= 0 {
		unix.Close(b.req)
	}
	b.req = m.take(0)
	return nil
}

// configChanged sends CONFIG_CHANGE_MSG. A channel that does not take twelve
// bytes is not being read; the message is lost and so would the next ones be.
func (b *backend) configChanged() bool {
	const needs = ProtocolFBackendReq | ProtocolFConfig
	if b.req < 0 || b.protocol&needs != needs {
		return false
	}
	h := Header{Request: Request(BackendConfigChange), Flags: version}
	n, err := unix.SendmsgN(b.req, h.Append(make([]byte, 0, headerSize)), nil, nil, unix.MSG_DONTWAIT|unix.MSG_NOSIGNAL)
	return err == nil && n == headerSize
}
