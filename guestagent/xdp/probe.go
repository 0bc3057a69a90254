package xdp

import (
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
)

// Condition is one thing that zero copy takes (Linux 7.3, virtio_net and xsk).
type Condition struct {
	Name   string `json:"name"`
	OK     bool   `json:"ok"`
	Have   string `json:"have"`
	Change string `json:"change,omitempty"` // what to do where it is not met
}

// facts are what sysfs says of a card.
type facts struct {
	driver   string
	bus      string // pci, virtio-mmio; of virtio_net
	features string // of virtio_net: a '0' or '1' for each feature bit
	mtu      int
	queues   int
	napiTX   bool
}

// Virtio feature bits (virtio 1.3, 5.1.3 and 6).
const (
	bitCtrlGuestOffloads = 2
	bitGuestTSO4         = 7
	bitGuestTSO6         = 8
	bitMrgRxbuf          = 15
	bitAccessPlatform    = 33
	bitRingReset         = 40
	bitGuestUSO4         = 54
	bitGuestUSO6         = 55
)

func (f *facts) has(bit int) bool { return bit < len(f.features) && f.features[bit] == '1' }

// Largest MTUs: that of the chunk without its headroom, the frame's header and
// trailing room (rounded down to 128 bytes), and that of a program of one page.
const (
	mtuExtra  = 26
	headroom  = 256
	attachMTU = 3506
)

func gather(sys, name string) (f facts, err error) {
	dir := filepath.Join(sys, "class/net", name)
	b, err := os.ReadFile(filepath.Join(dir, "mtu"))
	if err != nil {
		return f, fmt.Errorf("xdp: there is no card %s: %w", name, err)
	}
	f.mtu, _ = strconv.Atoi(strings.TrimSpace(string(b)))
	rx, _ := filepath.Glob(filepath.Join(dir, "queues/rx-*"))
	f.queues = len(rx)
	if l, err := os.Readlink(filepath.Join(dir, "device/driver")); err == nil {
		f.driver = filepath.Base(l)
	}
	if l, err := filepath.EvalSymlinks(filepath.Join(dir, "device")); err == nil {
		if l, err = os.Readlink(filepath.Join(filepath.Dir(l), "subsystem")); err == nil {
			f.bus = filepath.Base(l)
		}
	}
	b, _ = os.ReadFile(filepath.Join(dir, "device/features"))
	f.features = strings.TrimSpace(string(b))
	b, err = os.ReadFile(filepath.Join(sys, "module/virtio_net/parameters/napi_tx"))
	f.napiTX = err != nil || strings.HasPrefix(string(b), "Y")
	return f, nil
}

// Probe says for a card which conditions of zero copy on a queue are met, and as
// the last two what the kernel itself answers.
func Probe(name string, index, queue int) ([]Condition, error) {
	f, err := gather("/sys", name)
	if err != nil {
		return nil, err
	}
	list := judge(&f, queue)
	for _, m := range []Mode{ZeroCopy, Copy} {
		c := Condition{Name: "bind-" + m.String(), OK: true, Have: "bound"}
		s, err := Open(Config{Index: index, Queue: queue, Mode: m, Receive: true})
		if err == nil {
			s.Close()
		} else {
			c.OK, c.Have, c.Change = false, err.Error(), "see the conditions above that are not met; EOPNOTSUPP with all of them met: a kernel before 6.13"
		}
		list = append(list, c)
	}
	return list, nil
}

// judge compares facts with the conditions, without asking the kernel.
func judge(f *facts, queue int) (list []Condition) {
	add := func(name string, ok bool, have, change string) {
		if ok {
			change = ""
		}
		list = append(list, Condition{name, ok, have, change})
	}
	most := (DefaultFrameSize-headroom)/128*128 - mtuExtra
	add("mtu", f.mtu <= min(most, attachMTU), strconv.Itoa(f.mtu), fmt.Sprintf("ip link set mtu %d (a frame must fit a chunk of %d bytes)", min(most, 1500), DefaultFrameSize))
	add("queue", queue >= 0 && queue < f.queues, fmt.Sprintf("%d of %d", queue, f.queues), "choose a queue that is in use, or ethtool -L combined N")
	if f.driver != "virtio_net" {
		return list
	}
	tso := f.has(bitGuestTSO4) || f.has(bitGuestTSO6) || f.has(bitGuestUSO4) || f.has(bitGuestUSO6)
	yes := func(ok bool) string { return map[bool]string{true: "yes", false: "no"}[ok] }
	add("access-platform", f.has(bitAccessPlatform), yes(f.has(bitAccessPlatform)), "QEMU: iommu_platform=on,disable-legacy=on, and a backend that offers VIRTIO_F_ACCESS_PLATFORM (without: EINVAL)")
	add("ring-reset", f.has(bitRingReset), yes(f.has(bitRingReset)), "a backend that offers VIRTIO_F_RING_RESET (without: ENOENT)")
	add("transport", f.bus == "pci", f.bus, "virtio-net-pci: virtio-mmio cannot reset a queue")
	add("buffers", f.has(bitMrgRxbuf) || !tso && f.mtu <= 1500, "merged: "+yes(f.has(bitMrgRxbuf)), "QEMU: mrg_rxbuf=on, or guest_tso4=off,guest_tso6=off and an MTU of 1500 (without: ENOENT)")
	add("attach", f.has(bitCtrlGuestOffloads) || !tso, "CTRL_GUEST_OFFLOADS: "+yes(f.has(bitCtrlGuestOffloads)), "QEMU: ctrl_guest_offloads=on, or no guest_tso")
	add("napi-tx", f.napiTX, yes(f.napiTX), "load virtio_net with napi_tx=1: without it nothing is ever sent")
	return list
}
