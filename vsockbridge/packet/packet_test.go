package packet

import (
	"bytes"
	"encoding/hex"
	"testing"
)

// TestWire holds the layout of struct virtio_vsock_hdr (virtio 1.3, 5.10.6;
// linux/virtio_vsock.h), byte by byte.
func TestWire(t *testing.T) {
	wire, _ := hex.DecodeString("0300000000000000" + "0200000000000000" + "e8030000" + "00040000" +
		"2a000000" + "0200" + "0500" + "01000000" + "00000400" + "ffffffff")
	want := Header{SrcCID: 3, DstCID: 2, SrcPort: 1000, DstPort: 1024, Len: 42,
		Type: SeqPacket, Op: RW, Flags: EndOfMessage, BufAlloc: 256 << 10, FwdCnt: 1<<32 - 1}
	if got := Parse((*[Size]byte)(wire)); got != want {
		t.Errorf("parsed %+v", got)
	}
	var b [Size]byte
	if want.Put(&b); !bytes.Equal(b[:], wire) {
		t.Errorf("put %x", b)
	}
}

func TestNames(t *testing.T) {
	for op := Op(0); op < 10; op++ {
		if known := op >= 1 && op <= 7; op.Known() != known || (op.String() == "unknown op") == known {
			t.Errorf("%d: %v, %v", uint16(op), op, op.Known())
		}
	}
	if Stream.String() != "stream" || SeqPacket.String() != "seqpacket" || Type(3).String() != "unknown type" {
		t.Error("types")
	}
}

// TestCheckCID: 0, 1, 2 and 0xffffffff are reserved, the upper half is zero (5.10.4).
func TestCheckCID(t *testing.T) {
	for cid, ok := range map[uint64]bool{0: false, 1: false, 2: false, 3: true, 1<<32 - 2: true, 1<<32 - 1: false, 1 << 32: false, 1<<64 - 1: false} {
		if err := CheckCID(cid); (err == nil) != ok {
			t.Errorf("%d: %v", cid, err)
		}
	}
}

// FuzzHeader: every 44 bytes are a header, and are the same again.
func FuzzHeader(f *testing.F) {
	f.Add(make([]byte, Size))
	f.Fuzz(func(t *testing.T, in []byte) {
		if len(in) < Size {
			return
		}
		h := Parse((*[Size]byte)(in))
		var b [Size]byte
		if h.Put(&b); !bytes.Equal(b[:], in[:Size]) {
			t.Errorf("%x becomes %x", in[:Size], b)
		}
	})
}
