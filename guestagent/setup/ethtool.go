package setup

import (
	"encoding/binary"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"syscall"

	"github.com/vishvananda/netlink"
	"github.com/vishvananda/netlink/nl"
	"golang.org/x/sys/unix"
)

// What of a device is set by ethtool's netlink family (Linux,
// Documentation/networking/ethtool-netlink.rst; from 5.6 on).

const ethtoolVersion = 1 // ETHTOOL_GENL_VERSION

// ethtool sends one request about a device and returns the attributes of each
// answer.
func ethtool(index int, command uint8, flags int, attrs ...*nl.RtAttr) ([][]syscall.NetlinkRouteAttr, error) {
	family, err := netlink.GenlFamilyGet("ethtool")
	if err != nil {
		return nil, fmt.Errorf("the kernel has no ethtool by netlink: %w", err)
	}
	req := nl.NewNetlinkRequest(int(family.ID), flags)
	req.AddData(&nl.Genlmsg{Command: command, Version: ethtoolVersion})
	header := nested(unix.ETHTOOL_A_CHANNELS_HEADER) // 1 in every command
	header.AddRtAttr(unix.ETHTOOL_A_HEADER_DEV_INDEX, nl.Uint32Attr(uint32(index)))
	req.AddData(header)
	for _, a := range attrs {
		req.AddData(a)
	}
	messages, err := req.Execute(unix.NETLINK_GENERIC, 0)
	if err != nil {
		return nil, err
	}
	var answers [][]syscall.NetlinkRouteAttr
	for _, m := range messages {
		list, err := nl.ParseRouteAttr(m[nl.SizeofGenlmsg:])
		if err != nil {
			return nil, err
		}
		answers = append(answers, list)
	}
	return answers, nil
}

func nested(kind int) *nl.RtAttr { return nl.NewRtAttr(kind|unix.NLA_F_NESTED, nil) }

// find returns the value of the first attribute of a kind.
func find(list []syscall.NetlinkRouteAttr, kind uint16) []byte {
	for _, a := range list {
		if a.Attr.Type&nl.NLA_TYPE_MASK == kind {
			return a.Value
		}
	}
	return nil
}

// readDevice reads queues and offloads where a plan needs them.
func readDevice(index int, want, first, have State) error {
	asked := map[Kind]bool{}
	for _, s := range []State{want, first} {
		for key := range s {
			asked[key.Kind] = true
		}
	}
	if asked[Queues] {
		ch, err := readChannels(index)
		if err != nil && !errors.Is(err, unix.EOPNOTSUPP) {
			return err
		}
		if err == nil {
			have[Key{Queues, ""}] = strconv.Itoa(ch.count())
		}
	}
	if !asked[Offload] {
		return nil
	}
	active, err := readFeatures(index)
	if err != nil {
		return err
	}
	for _, s := range []State{want, first} {
		for key := range s {
			if key.Kind == Offload {
				have[key] = map[bool]string{true: "on", false: "off"}[active[key.Name]]
			}
		}
	}
	return nil
}

// channels are a device's queues: pairs (combined), or each way by itself.
type channels struct{ maxRX, maxTX, maxPairs, rx, tx, pairs uint32 }

func (c *channels) count() int {
	if c.maxPairs > 0 {
		return int(c.pairs)
	}
	return int(min(c.rx, c.tx))
}

func readChannels(index int) (c channels, err error) {
	answers, err := ethtool(index, unix.ETHTOOL_MSG_CHANNELS_GET, 0)
	if err != nil {
		return c, err
	}
	if len(answers) == 0 {
		return c, errors.New("no answer about queues")
	}
	for kind, to := range map[uint16]*uint32{
		unix.ETHTOOL_A_CHANNELS_RX_MAX: &c.maxRX, unix.ETHTOOL_A_CHANNELS_TX_MAX: &c.maxTX, unix.ETHTOOL_A_CHANNELS_COMBINED_MAX: &c.maxPairs,
		unix.ETHTOOL_A_CHANNELS_RX_COUNT: &c.rx, unix.ETHTOOL_A_CHANNELS_TX_COUNT: &c.tx, unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT: &c.pairs,
	} {
		if v := find(answers[0], kind); len(v) == 4 {
			*to = binary.NativeEndian.Uint32(v)
		}
	}
	return c, nil
}

func setQueues(index int, to string) error {
	n, err := strconv.ParseUint(to, 10, 32)
	if err != nil {
		return err
	}
	c, err := readChannels(index)
	switch most := max(c.maxPairs, min(c.maxRX, c.maxTX)); {
	case errors.Is(err, unix.EOPNOTSUPP) || err == nil && most == 0:
		return errors.New("the device has no queues to choose")
	case err != nil:
		return err
	case uint32(n) > most:
		return fmt.Errorf("the device has %d pairs of queues", most)
	}
	count := nl.Uint32Attr(uint32(n))
	attrs := []*nl.RtAttr{nl.NewRtAttr(unix.ETHTOOL_A_CHANNELS_COMBINED_COUNT, count)}
	if c.maxPairs == 0 {
		attrs = []*nl.RtAttr{nl.NewRtAttr(unix.ETHTOOL_A_CHANNELS_RX_COUNT, count), nl.NewRtAttr(unix.ETHTOOL_A_CHANNELS_TX_COUNT, count)}
	}
	_, err = ethtool(index, unix.ETHTOOL_MSG_CHANNELS_SET, unix.NLM_F_ACK, attrs...)
	return err
}

// readFeatures returns the offloads that are on, by the kernel's names.
func readFeatures(index int) (map[string]bool, error) {
	answers, err := ethtool(index, unix.ETHTOOL_MSG_FEATURES_GET, 0)
	if err != nil {
		return nil, err
	}
	active := map[string]bool{}
	for _, answer := range answers {
		// A bit set, all of whose listed bits are set: ACTIVE has no mask.
		set, err := nl.ParseRouteAttr(find(answer, unix.ETHTOOL_A_FEATURES_ACTIVE))
		if err != nil {
			return nil, err
		}
		bits, err := nl.ParseRouteAttr(find(set, unix.ETHTOOL_A_BITSET_BITS))
		if err != nil {
			return nil, err
		}
		for _, b := range bits {
			bit, err := nl.ParseRouteAttr(b.Value)
			if err != nil {
				return nil, err
			}
			active[strings.TrimRight(string(find(bit, unix.ETHTOOL_A_BITSET_BIT_NAME)), "\x00")] = true
		}
	}
	return active, nil
}

func setFeature(index int, name string, on bool) error {
	bit := nested(unix.ETHTOOL_A_BITSET_BITS_BIT)
	bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_NAME, nl.ZeroTerminated(name))
	if on {
		bit.AddRtAttr(unix.ETHTOOL_A_BITSET_BIT_VALUE, nil)
	}
	bits := nested(unix.ETHTOOL_A_BITSET_BITS)
	bits.AddChild(bit)
	wanted := nested(unix.ETHTOOL_A_FEATURES_WANTED)
	wanted.AddChild(bits)
	_, err := ethtool(index, unix.ETHTOOL_MSG_FEATURES_SET, unix.NLM_F_ACK, wanted)
	if errors.Is(err, unix.EINVAL) || errors.Is(err, unix.EOPNOTSUPP) {
		return fmt.Errorf("%w: the kernel knows no feature of that name (ethtool -k lists them)", err)
	}
	return err
}
