package vhostuser

import "guestwire/vring"

// State is a snapshot of a Server.
type State struct {
	Connected        bool
	Features         uint64 // acknowledged by the frontend
	ProtocolFeatures uint64
	Status           uint8 // virtio device status, as SET_STATUS left it
	Regions          int   // of guest memory
	Logging          bool  // the dirty log is on
	Rings            []RingInfo
}

// RingInfo is a snapshot of one ring.
type RingInfo struct {
	State     string
	Enabled   bool
	Size      uint16
	LastAvail uint16
	Broken    *vring.BrokenError
	Stats     vring.QueueStats
}
