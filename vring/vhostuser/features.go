package vhostuser

import (
	"fmt"
	"math/bits"
	"strings"
)

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

type bitName struct {
	bit  uint64
	name string
}

var featureNames = []bitName{
	{NetFCsum, "VIRTIO_NET_F_CSUM"}, {NetFGuestCsum, "VIRTIO_NET_F_GUEST_CSUM"},
	{NetFCtrlGuestOffloads, "VIRTIO_NET_F_CTRL_GUEST_OFFLOADS"}, {NetFMTU, "VIRTIO_NET_F_MTU"},
	{NetFMAC, "VIRTIO_NET_F_MAC"}, {NetFGuestTSO4, "VIRTIO_NET_F_GUEST_TSO4"},
	{NetFGuestTSO6, "VIRTIO_NET_F_GUEST_TSO6"}, {NetFGuestECN, "VIRTIO_NET_F_GUEST_ECN"},
	{NetFGuestUFO, "VIRTIO_NET_F_GUEST_UFO"}, {NetFHostTSO4, "VIRTIO_NET_F_HOST_TSO4"},
	{NetFHostTSO6, "VIRTIO_NET_F_HOST_TSO6"}, {NetFHostECN, "VIRTIO_NET_F_HOST_ECN"},
	{NetFHostUFO, "VIRTIO_NET_F_HOST_UFO"}, {NetFMrgRxbuf, "VIRTIO_NET_F_MRG_RXBUF"},
	{NetFStatus, "VIRTIO_NET_F_STATUS"}, {NetFCtrlVQ, "VIRTIO_NET_F_CTRL_VQ"},
	{NetFCtrlRX, "VIRTIO_NET_F_CTRL_RX"}, {NetFCtrlVLAN, "VIRTIO_NET_F_CTRL_VLAN"},
	{NetFGuestAnnounce, "VIRTIO_NET_F_GUEST_ANNOUNCE"}, {NetFMQ, "VIRTIO_NET_F_MQ"},
	{NetFCtrlMACAddr, "VIRTIO_NET_F_CTRL_MAC_ADDR"}, {FNotifyOnEmpty, "VIRTIO_F_NOTIFY_ON_EMPTY"},
	{VhostFLogAll, "VHOST_F_LOG_ALL"}, {FAnyLayout, "VIRTIO_F_ANY_LAYOUT"},
	{RingFIndirectDesc, "VIRTIO_F_INDIRECT_DESC"}, {RingFEventIdx, "VIRTIO_F_EVENT_IDX"},
	{VhostUserFProtocolFeatures, "VHOST_USER_F_PROTOCOL_FEATURES"}, {FVersion1, "VIRTIO_F_VERSION_1"},
	{FAccessPlatform, "VIRTIO_F_ACCESS_PLATFORM"}, {FRingPacked, "VIRTIO_F_RING_PACKED"},
	{FInOrder, "VIRTIO_F_IN_ORDER"}, {FOrderPlatform, "VIRTIO_F_ORDER_PLATFORM"}, {FSRIOV, "VIRTIO_F_SR_IOV"},
	{FNotificationData, "VIRTIO_F_NOTIFICATION_DATA"}, {FNotifConfigData, "VIRTIO_F_NOTIF_CONFIG_DATA"},
	{FRingReset, "VIRTIO_F_RING_RESET"}, {NetFGuestUSO4, "VIRTIO_NET_F_GUEST_USO4"},
	{NetFGuestUSO6, "VIRTIO_NET_F_GUEST_USO6"}, {NetFHostUSO, "VIRTIO_NET_F_HOST_USO"},
	{NetFHashReport, "VIRTIO_NET_F_HASH_REPORT"}, {NetFGuestHdrlen, "VIRTIO_NET_F_GUEST_HDRLEN"},
	{NetFRSS, "VIRTIO_NET_F_RSS"}, {NetFSpeedDuplex, "VIRTIO_NET_F_SPEED_DUPLEX"},
}

var protocolNames = []bitName{
	{ProtocolFMQ, "MQ"}, {ProtocolFLogShmfd, "LOG_SHMFD"}, {ProtocolFRARP, "RARP"},
	{ProtocolFReplyAck, "REPLY_ACK"}, {ProtocolFNetMTU, "NET_MTU"}, {ProtocolFBackendReq, "BACKEND_REQ"},
	{ProtocolFCrossEndian, "CROSS_ENDIAN"}, {ProtocolFCryptoSession, "CRYPTO_SESSION"},
	{ProtocolFPagefault, "PAGEFAULT"}, {ProtocolFConfig, "CONFIG"}, {ProtocolFBackendSendFD, "BACKEND_SEND_FD"},
	{ProtocolFHostNotifier, "HOST_NOTIFIER"}, {ProtocolFInflightShmfd, "INFLIGHT_SHMFD"},
	{ProtocolFResetDevice, "RESET_DEVICE"}, {ProtocolFInbandNotifications, "INBAND_NOTIFICATIONS"},
	{ProtocolFConfigureMemSlots, "CONFIGURE_MEM_SLOTS"}, {ProtocolFStatus, "STATUS"},
	{ProtocolFXenMmap, "XEN_MMAP"}, {ProtocolFSharedObject, "SHARED_OBJECT"},
	{ProtocolFDeviceState, "DEVICE_STATE"}, {ProtocolFGetVringBaseInflight, "GET_VRING_BASE_INFLIGHT"},
	{ProtocolFGPAAddresses, "GPA_ADDRESSES"}, {ProtocolFShmemMap, "SHMEM_MAP"},
}

// FeatureNames spells a set of virtio feature bits as the specifications do.
func FeatureNames(set uint64) string { return spell(set, featureNames) }

// ProtocolFeatureNames spells a set of protocol feature bits, each without its
// VHOST_USER_PROTOCOL_F_.
func ProtocolFeatureNames(set uint64) string { return spell(set, protocolNames) }

func spell(set uint64, names []bitName) string {
	var out []string
	for _, n := range names {
		if set&n.bit != 0 {
			out = append(out, n.name)
			set &^= n.bit
		}
	}
	for set != 0 {
		out = append(out, fmt.Sprintf("bit %d", bits.TrailingZeros64(set)))
		set &= set - 1
	}
	if out == nil {
		return "none"
	}
	return strings.Join(out, " ")
}
