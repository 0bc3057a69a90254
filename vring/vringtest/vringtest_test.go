package vringtest_test

import (
	"bytes"
	"testing"

	"guestwire/vring"
	"guestwire/vring/vringtest"
)

func TestMemoryAcrossRegions(t *testing.T) {
	m := vringtest.NewMemory(t, 100, 50, 8192)
	want := []byte("across three regions, the middle one of which is short enough to be jumped over by one write")
	at := uint64(vringtest.BaseGPA + 90)
	m.Write(at, want)
	if got := m.Read(at, uint64(len(want))); !bytes.Equal(got, want) {
		t.Errorf("read %q", got)
	}
	segs, ok := m.Table().Append(nil, at, uint64(len(want)))
	if !ok || len(segs) != 3 || !bytes.Equal(bytes.Join(segs, nil), want) {
		t.Errorf("the device sees %q", segs)
	}
	if m.End() != vringtest.BaseGPA+100+50+8192 {
		t.Errorf("memory ends at %#x", m.End())
	}
	if gpa := m.Alloc(60, 8); gpa != vringtest.BaseGPA || m.Alloc(60, 1) != vringtest.BaseGPA+150 {
		t.Error("Alloc must stay inside one region")
	}
	if s := m.Table().UserSlice(m.UVA(at), 4); string(s) != "acro" {
		t.Errorf("at the frontend's address is %q", s)
	}
}

// An echo: what the driver sends comes back into what it posted.
func TestDriver(t *testing.T) {
	for _, f := range []vringtest.Features{{}, {EventIdx: true, Indirect: true, InOrder: true}} {
		m := vringtest.NewMemory(t, 1<<20)
		queues := [2]*vring.DeviceQueue{}
		drivers := [2]*vringtest.Driver{}
		call := vringtest.NewEvent(t)
		for i := range queues {
			r := m.NewRing(8)
			drivers[i] = r.NewDriver(f, 0)
			c := r.Config(m.Table())
			c.EventIdx, c.Indirect, c.InOrder, c.CallFD = f.EventIdx, f.Indirect, f.InOrder, call.FD
			q, err := vring.NewDeviceQueue(c)
			if err != nil {
				t.Fatal(err)
			}
			queues[i] = q
		}
		tx, rx := queues[0], queues[1]
		for i := range 100 {
			tx.ArmKick()
			part := bytes.Repeat([]byte{byte(i)}, 10+i)
			if _, ok := drivers[1].Post(64, 128); !ok {
				t.Fatal("no room to post")
			}
			if _, ok := drivers[0].Send(part, []byte("tail")); !ok {
				t.Fatal("no room to send")
			}
			if drivers[0].Kick.Count() == 0 {
				t.Fatal("no kick")
			}
			var in, out vring.Chain
			if !tx.Pop(&in) || !rx.Pop(&out) {
				t.Fatal(tx.Broken(), rx.Broken())
			}
			msg := bytes.Join(in.Readable, nil)
			rest := msg
			for _, s := range out.Writable {
				rest = rest[copy(s, rest):]
			}
			tx.Push(in.Head, 0)
			rx.Push(out.Head, uint32(len(msg)))
			tx.Publish()
			rx.Publish()
			if i == 0 && !call.Wait(0) {
				t.Fatal("no call")
			}
			if used := drivers[0].Reap(); len(used) != 1 || used[0].Written != 0 {
				t.Fatalf("sent chains came back as %+v", used)
			}
			want := append(part, "tail"...)
			if used := drivers[1].Reap(); len(used) != 1 || !bytes.Equal(used[0].Data, want) {
				t.Fatalf("received %+v, want %q", used, want)
			}
		}
	}
}

func TestRingFields(t *testing.T) {
	m := vringtest.NewMemory(t, 1<<16)
	r := m.NewRing(4)
	r.Start(7)
	r.Offer(3, 1)
	r.SetUsed(7, 3, 9)
	if id, n := r.UsedElem(7); r.AvailIdx() != 9 || r.UsedIdx() != 8 || id != 3 || n != 9 || r.UsedFlags() != 0 || r.AvailEvent() != 0 {
		t.Error("fields are misplaced")
	}
	if call := vringtest.NewEvent(t); call.Wait(1) || call.Count() != 0 {
		t.Error("a fresh event is signalled")
	}
}
