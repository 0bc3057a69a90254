package tcp

import (
	"crypto/sha256"
	"encoding/binary"

	"guestwire/translate/flow"
	"guestwire/translate/wire"
)

// isn is an initial sequence number (RFC 6528): a keyed hash of the connection's
// ends, so that numbers of one connection tell nothing about those of another,
// plus a clock of 4 microseconds, so that a connection with the same ends begins
// beyond its predecessor.
func (e *Engine) isn(k *flow.Key) wire.Seq {
	var b [16 + 16 + 16 + 4]byte
	copy(b[:], e.cfg.Secret[:])
	copy(b[16:], k.Guest[:])
	copy(b[32:], k.Remote[:])
	binary.BigEndian.PutUint16(b[48:], k.GuestPort)
	binary.BigEndian.PutUint16(b[50:], k.RemotePort)
	h := sha256.Sum256(b[:])
	return wire.Seq(binary.BigEndian.Uint32(h[:])) + wire.Seq(uint64(e.now())/4000)
}
