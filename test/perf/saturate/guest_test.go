package saturate

import (
	"encoding/binary"
	"testing"

	"golang.org/x/sys/unix"

	"guestwire/vring"
	"guestwire/vring/vhostuser"
	"guestwire/vring/vringtest"
)

const (
	netHdr   = 12 // struct virtio_net_hdr_mrg_rxbuf
	headers  = 14 + 20 + 20
	payload  = 65536 - 20 - 20 - 16 // of a full TSO frame; any length will do
	txFrames = 16                   // in flight at most, 1 MiB
	rxBuf    = 4096
	ringSize = 512
)

// guest is the driver side of one virtio-net device: it owns the memory, the
// rings and the eventfds.
type guest struct {
	b      testing.TB
	f      *vhostuser.Frontend
	mem    *vringtest.Memory
	rx, tx *vring.DriverQueue
	rxCall *vringtest.Event
	txCall *vringtest.Event

	txHdr  uint64 // netHdr+headers bytes per frame, txFrames of them
	txData uint64 // payload bytes, shared by all frames
	txFree []uint32
	rxBase uint64
}

const features = vhostuser.FVersion1 | vhostuser.NetFCsum | vhostuser.NetFGuestCsum |
	vhostuser.NetFHostTSO4 | vhostuser.NetFGuestTSO4 | vhostuser.NetFMrgRxbuf |
	vhostuser.RingFEventIdx | vhostuser.RingFIndirectDesc | vhostuser.VhostUserFProtocolFeatures

// connect brings the device up as a guest's driver does.
func connect(b testing.TB, path string) *guest {
	f, err := vhostuser.DialFrontend(path)
	must(b, err)
	b.Cleanup(f.Close)
	g := &guest{b: b, f: f, mem: vringtest.NewMemory(b, 64<<20)}
	must(b, f.SetOwner())
	offered, err := f.GetFeatures()
	must(b, err)
	if offered&features != features {
		b.Fatalf("the backend does not offer %#x", features&^offered)
	}
	_, err = f.GetProtocolFeatures()
	must(b, err)
	must(b, f.SetProtocolFeatures(0))
	must(b, f.SetFeatures(features))
	must(b, f.SetMemTable(g.mem.Regions()))
	g.rx, g.rxCall = g.ring(0)
	g.tx, g.txCall = g.ring(1)
	must(b, f.SetVringEnable(0, true))
	must(b, f.SetVringEnable(1, true))

	g.txHdr = g.mem.Alloc(txFrames*128, 64)
	g.txData = g.mem.Alloc(payload, 4096)
	for i := range txFrames {
		g.txFree = append(g.txFree, uint32(i))
	}
	g.rxBase = g.mem.Alloc(ringSize*rxBuf, 4096)
	for i := range ringSize {
		g.post(uint32(i))
	}
	g.rx.Publish()
	return g
}

func must(b testing.TB, err error) {
	b.Helper()
	if err != nil {
		b.Fatal(err)
	}
}

func (g *guest) ring(i int) (*vring.DriverQueue, *vringtest.Event) {
	r := g.mem.NewRing(ringSize)
	kick, call := vringtest.NewEvent(g.b), vringtest.NewEvent(g.b)
	c := r.DriverConfig()
	c.EventIdx, c.Indirect, c.CallFD = true, i == 1, kick.FD
	if c.Indirect {
		c.Mem = g.mem.Table()
	}
	q, err := vring.NewDriverQueue(c)
	must(g.b, err)
	must(g.b, g.f.SetVringNum(i, ringSize))
	must(g.b, g.f.SetVringBase(i, 0))
	must(g.b, g.f.SetVringAddr(vhostuser.VringAddr{
		Index: uint32(i), Desc: g.mem.UVA(r.DescGPA), Avail: g.mem.UVA(r.AvailGPA), Used: g.mem.UVA(r.UsedGPA), Log: r.UsedGPA,
	}))
	must(g.b, g.f.SetVringCall(i, call.FD))
	must(g.b, g.f.SetVringKick(i, kick.FD))
	return q, call
}

func (g *guest) post(i uint32) {
	g.rx.Add([]vring.DriverSeg{{GPA: g.rxBase + uint64(i)*rxBuf, Len: rxBuf, Write: true}}, i)
}

// frame is a transmit buffer to be filled: virtio header, then Ethernet header.
func (g *guest) frame(i uint32) []byte { return g.mem.Bytes(g.txHdr+uint64(i)*128, 128) }

// send queues n payload bytes behind the headers of frame i.
func (g *guest) send(i uint32, hdrLen, n int) {
	segs := []vring.DriverSeg{{GPA: g.txHdr + uint64(i)*128, Len: uint32(netHdr + hdrLen)}}
	if n > 0 {
		segs = append(segs, vring.DriverSeg{GPA: g.txData, Len: uint32(n)})
	}
	if _, ok := g.tx.Add(segs, i); !ok {
		g.b.Fatal("the TX ring is full")
	}
}

func (g *guest) reapTX() {
	for {
		i, _, ok := g.tx.Used()
		if !ok {
			return
		}
		g.txFree = append(g.txFree, i)
	}
}

func (g *guest) takeTX() (uint32, bool) {
	g.reapTX()
	if len(g.txFree) == 0 {
		return 0, false
	}
	i := g.txFree[len(g.txFree)-1]
	g.txFree = g.txFree[:len(g.txFree)-1]
	return i, true
}

// received calls f with the first buffer of each frame that has come, and posts
// the buffers again.
func (g *guest) received(f func(first []byte)) (any bool) {
	var head []byte
	left := 0
	for {
		i, _, ok := g.rx.Used()
		if !ok {
			break
		}
		any = true
		if left == 0 {
			head = g.mem.Bytes(g.rxBase+uint64(i)*rxBuf, rxBuf)
			left = int(binary.LittleEndian.Uint16(head[10:]))
		}
		if left--; left == 0 {
			f(head)
		}
		g.post(i) // the frame's first buffer is not written again before Publish
	}
	if any {
		g.rx.Publish()
	}
	return any
}

// wait sleeps until a ring has news.
func (g *guest) wait(rx, tx bool) {
	armed := false
	p := make([]unix.PollFd, 0, 2)
	if rx {
		armed = g.rx.ArmCall()
		p = append(p, unix.PollFd{Fd: int32(g.rxCall.FD), Events: unix.POLLIN})
	}
	if tx {
		armed = g.tx.ArmCall() || armed
		p = append(p, unix.PollFd{Fd: int32(g.txCall.FD), Events: unix.POLLIN})
	}
	if !armed {
		_, _ = unix.Poll(p, 100)
	}
	g.rxCall.Count()
	g.txCall.Count()
	g.rx.DisarmCall()
	g.tx.DisarmCall()
}
