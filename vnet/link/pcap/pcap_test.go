package pcap

import (
	"bytes"
	"errors"
	"io"
	"testing"
	"time"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/gopacket/gopacket/pcapgo"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
)

// read decodes a file with an independent reader.
func read(t *testing.T, file []byte) (data [][]byte, info []gopacket.CaptureInfo, opts []pcapgo.NgPacketOptions) {
	t.Helper()
	r, err := pcapgo.NewNgReader(bytes.NewReader(file), pcapgo.DefaultNgReaderOptions)
	if err != nil {
		t.Fatal(err)
	}
	if r.LinkType() != layers.LinkTypeEthernet {
		t.Errorf("link type %v", r.LinkType())
	}
	for {
		d, ci, o, err := r.ReadPacketDataWithOptions()
		if errors.Is(err, io.EOF) {
			return data, info, opts
		}
		if err != nil {
			t.Fatal(err)
		}
		data, info, opts = append(data, d), append(info, ci), append(opts, o)
	}
}

func frame(n int, fill byte) []byte { return bytes.Repeat([]byte{fill}, n) }

func TestBothDirections(t *testing.T) {
	var file bytes.Buffer
	now := int64(1_700_000_000_123_456_789)
	h := &linktest.Handler{}
	p := New(Config{W: &file, Now: func() int64 { now++; return now }}, h)
	ep := linktest.NewEndpoint(t, linktest.AllCaps(1500))
	ep.SegLen = 10
	p.LinkUp(ep, true)
	if len(h.Ups) != 1 || !h.Ups[0].Fresh || h.EP() != link.Endpoint(p) || h.Ups[0].Caps.MTU != 1500 {
		t.Fatalf("handler was told %+v", h.Ups)
	}

	p.Frames(linktest.Batch(7, linktest.Frame{Data: frame(61, 1)}, linktest.Frame{Data: frame(14, 2)}))
	slots := h.EP().Reserve(20, 33, 3)
	for i := range slots {
		copy(slots[i].Header, frame(20, 3))
		for _, s := range slots[i].Payload {
			copy(s, frame(len(s), byte(4+i)))
		}
		slots[i].Used = 33 - i
	}
	h.EP().Commit(2)
	p.Writable()
	p.LinkDown()
	if err := p.Flush(); err != nil {
		t.Fatal(err)
	}
	if h.Writables != 1 || h.Downs != 1 || h.Count != 2 || ep.Count != 2 {
		t.Errorf("not passed on: %d writables, %d downs, %d frames up, %d down", h.Writables, h.Downs, h.Count, ep.Count)
	}

	data, info, opts := read(t, file.Bytes())
	want := [][]byte{frame(61, 1), frame(14, 2),
		append(frame(20, 3), frame(33, 4)...), append(frame(20, 3), frame(32, 5)...)}
	dirs := []uint32{flagOutbound, flagOutbound, flagInbound, flagInbound}
	if len(data) != len(want) {
		t.Fatalf("%d packets, want %d", len(data), len(want))
	}
	for i := range want {
		if !bytes.Equal(data[i], want[i]) || info[i].Length != len(want[i]) {
			t.Errorf("packet %d: %x (%d)", i, data[i], info[i].Length)
		}
		if d := opts[i].Flags.ToUint32(); d != dirs[i] {
			t.Errorf("packet %d: direction %v, want %v", i, d, dirs[i])
		}
	}
	if at := time.Unix(0, 1_700_000_000_123_456_790); !info[0].Timestamp.Equal(at) {
		t.Errorf("first at %v, want %v", info[0].Timestamp, at)
	}
}

func TestSnapAndSize(t *testing.T) {
	var file bytes.Buffer
	h := &linktest.Handler{}
	c := Config{W: &file, Now: func() int64 { return 1 }, Snap: 101}
	c.Size = int64(len(header(101)) + 2*packetLen(101))
	p := New(c, h)
	for range 5 {
		p.Frames(linktest.Batch(0, linktest.Frame{Data: frame(1000, 9)}))
	}
	p.Flush()
	if int64(file.Len()) > c.Size {
		t.Errorf("file of %d bytes, cap %d", file.Len(), c.Size)
	}
	data, info, _ := read(t, file.Bytes())
	if len(data) != 2 || len(data[0]) != 101 || info[0].Length != 1000 {
		t.Errorf("%d packets, first %d of %d bytes; want 2, 101 of 1000", len(data), len(data[0]), info[0].Length)
	}
	if s := p.Stats(); s.Recorded != 2 || s.Missed != 3 {
		t.Errorf("stats %+v", s)
	}
	if h.Count != 5 {
		t.Errorf("%d frames passed on, want 5", h.Count)
	}
}

type broken struct{}

func (broken) Write([]byte) (int, error) { return 0, errors.New("disk full") }

func TestWriteErrorEndsRecordingOnly(t *testing.T) {
	h := &linktest.Handler{}
	p := New(Config{W: broken{}, Now: func() int64 { return 1 }}, h)
	for range 20 {
		p.Frames(linktest.Batch(0, linktest.Frame{Data: frame(60000, 9)}))
	}
	if p.Flush() == nil || h.Count != 20 || p.Stats().Missed == 0 {
		t.Errorf("passed on %d, stats %+v", h.Count, p.Stats())
	}
}

func TestRecordDoesNotAllocate(t *testing.T) {
	p := New(Config{W: io.Discard, Now: func() int64 { return 1 }, Size: 1 << 40}, &linktest.Handler{Discard: true})
	batch := linktest.Batch(1000, linktest.Frame{Data: frame(9000, 9)})
	if n := testing.AllocsPerRun(200, func() { p.Frames(batch) }); n != 0 {
		t.Errorf("%v allocations per frame", n)
	}
}
