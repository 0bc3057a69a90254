package vhostuser

// Virtio and vhost feature bits, as masks. A name is the specification's with
// the leading VIRTIO_ (for the vhost ones: nothing) taken off and the
// underscores folded: VIRTIO_NET_F_GUEST_TSO4 is NetFGuestTSO4.
const (
	NetFCsum              uint64 = 1 << 0  // driver may leave L4 checksums to us
	NetFGuestCsum         uint64 = 1 << 1  // driver takes packets with partial checksums
	NetFCtrlGuestOffloads uint64 = 1 << 2  // offloads switchable through the control queue
	NetFMTU               uint64 = 1 << 3  // config space has an initial MTU
	NetFMAC               uint64 = 1 << 5  // config space has a MAC address
	NetFGuestTSO4         uint64 = 1 << 7  // driver takes TSO frames over IPv4
	NetFGuestTSO6         uint64 = 1 << 8  // driver takes TSO frames over IPv6
	NetFGuestECN          uint64 = 1 << 9  // driver takes TSO frames with ECN
	NetFGuestUFO          uint64 = 1 << 10 // driver takes UFO frames (legacy)
	NetFHostTSO4          uint64 = 1 << 11 // we take TSO frames over IPv4
	NetFHostTSO6          uint64 = 1 << 12 // we take TSO frames over IPv6
	NetFHostECN           uint64 = 1 << 13 // we take TSO frames with ECN
	NetFHostUFO           uint64 = 1 << 14 // we take UFO frames (legacy)
	NetFMrgRxbuf          uint64 = 1 << 15 // a received frame may span several chains
	NetFStatus            uint64 = 1 << 16 // config space has a link state
	NetFCtrlVQ            uint64 = 1 << 17 // there is a control queue
	NetFCtrlRX            uint64 = 1 << 18
	NetFCtrlVLAN          uint64 = 1 << 19
	NetFGuestAnnounce     uint64 = 1 << 21
	NetFMQ                uint64 = 1 << 22 // several queue pairs
	NetFCtrlMACAddr       uint64 = 1 << 23
	NetFHostUSO           uint64 = 1 << 56 // we take UDP segmentation frames
	NetFGuestUSO4         uint64 = 1 << 54 // driver takes UDP segmentation frames over IPv4
	NetFGuestUSO6         uint64 = 1 << 55 // driver takes UDP segmentation frames over IPv6
	NetFHashReport        uint64 = 1 << 57
	NetFGuestHdrlen       uint64 = 1 << 59 // hdr_len is exact
	NetFRSS               uint64 = 1 << 60
	NetFSpeedDuplex       uint64 = 1 << 63

	FNotifyOnEmpty    uint64 = 1 << 24 // legacy
	FAnyLayout        uint64 = 1 << 27 // legacy
	RingFIndirectDesc uint64 = 1 << 28
	RingFEventIdx     uint64 = 1 << 29
	FVersion1         uint64 = 1 << 32
	FAccessPlatform   uint64 = 1 << 33
	FRingPacked       uint64 = 1 << 34
	FInOrder          uint64 = 1 << 35
	FOrderPlatform    uint64 = 1 << 36
	FSRIOV            uint64 = 1 << 37
	FNotificationData uint64 = 1 << 38
	FNotifConfigData  uint64 = 1 << 39
	FRingReset        uint64 = 1 << 40

	VhostFLogAll               uint64 = 1 << 26 // log every write to guest memory
	VhostUserFProtocolFeatures uint64 = 1 << 30 // GET/SET_PROTOCOL_FEATURES exist
)

// Protocol feature bits (vhost-user, "Protocol features"), as masks.
const (
	ProtocolFMQ                   uint64 = 1 << 0
	ProtocolFLogShmfd             uint64 = 1 << 1
	ProtocolFRARP                 uint64 = 1 << 2
	ProtocolFReplyAck             uint64 = 1 << 3
	ProtocolFNetMTU               uint64 = 1 << 4
	ProtocolFBackendReq           uint64 = 1 << 5
	ProtocolFCrossEndian          uint64 = 1 << 6
	ProtocolFCryptoSession        uint64 = 1 << 7
	ProtocolFPagefault            uint64 = 1 << 8
	ProtocolFConfig               uint64 = 1 << 9
	ProtocolFBackendSendFD        uint64 = 1 << 10
	ProtocolFHostNotifier         uint64 = 1 << 11
	ProtocolFInflightShmfd        uint64 = 1 << 12
	ProtocolFResetDevice          uint64 = 1 << 13
	ProtocolFInbandNotifications  uint64 = 1 << 14
	ProtocolFConfigureMemSlots    uint64 = 1 << 15
	ProtocolFStatus               uint64 = 1 << 16
	ProtocolFXenMmap              uint64 = 1 << 17
	ProtocolFSharedObject         uint64 = 1 << 18
	ProtocolFDeviceState          uint64 = 1 << 19
	ProtocolFGetVringBaseInflight uint64 = 1 << 20
	ProtocolFGPAAddresses         uint64 = 1 << 21
	ProtocolFShmemMap             uint64 = 1 << 22
)

// AlwaysProtocol is offered for every device: these need nothing from it.
const AlwaysProtocol = ProtocolFReplyAck | ProtocolFLogShmfd | ProtocolFBackendReq | ProtocolFResetDevice |
	ProtocolFConfigureMemSlots | ProtocolFStatus | ProtocolFGPAAddresses
