package vnet

import (
	"bytes"
	"testing"

	"guestwire/vnet/link"
	"guestwire/vnet/link/linktest"
	"guestwire/vring/eventloop"
	"guestwire/vring/vhostuser"
)

func newDevice(t *testing.T, c Config) (*Device, error) {
	t.Helper()
	loop, err := eventloop.New(eventloop.NewClock())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(loop.Close)
	d, err := New(c, &linktest.Handler{}, loop)
	if err == nil {
		t.Cleanup(d.Close)
	}
	return d, err
}

// Bit numbers are those of virtio 1.3, 5.1.3 and 6.
func bits(n ...int) (f uint64) {
	for _, b := range n {
		f |= 1 << b
	}
	return f
}

func TestOffered(t *testing.T) {
	base := bits(0, 1, 3, 7, 8, 9, 11, 12, 13, 15, 28, 29, 32, 35, 54, 55, 56)
	for _, tc := range []struct {
		name     string
		p        Profile
		withhold uint64
		want     uint64
	}{
		{"qemu", ProfileQEMU, 0, base},
		{"uml", ProfileUML, 0, base | bits(5, 16)},
		{"generic", ProfileGeneric, 0, base | bits(5, 16)},
		{"no TSO", ProfileQEMU, TSO, base &^ bits(7, 8, 9, 11, 12, 13)},
		{"no USO", ProfileQEMU, USO, base &^ bits(54, 55, 56)},
		{"no checksums, so none of what needs them", ProfileQEMU, Csum, base &^ bits(0, 1, 7, 8, 9, 11, 12, 13, 54, 55, 56)},
		{"no GUEST_CSUM", ProfileQEMU, bits(1), base &^ bits(1, 7, 8, 9, 54, 55)},
		{"no HOST_TSO, so no HOST_ECN", ProfileQEMU, bits(11, 12), base &^ bits(11, 12, 13)},
		{"ring features", ProfileQEMU, bits(15, 28, 29, 35), base &^ bits(15, 28, 29, 35)},
		{"VERSION_1 cannot be withheld", ProfileQEMU, bits(32), base},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := newDevice(t, Config{Profile: tc.p, Withhold: tc.withhold})
			if err != nil {
				t.Fatal(err)
			}
			if got := d.Features(); got != tc.want {
				t.Errorf("offered %#x, want %#x: differ in %#x", got, tc.want, got^tc.want)
			}
			if d.Features()&bits(10, 14, 17, 22, 33, 34, 40) != 0 {
				t.Error("offered what the device does not do")
			}
			proto := d.Protocol()
			if proto&vhostuser.ProtocolFMQ != 0 || (proto&vhostuser.ProtocolFConfig != 0) != (tc.p != ProfileQEMU) {
				t.Errorf("protocol features %#x", proto)
			}
			if d.Queues() != 2 || d.QueueNum() != 1 {
				t.Errorf("%d queues, %d pairs", d.Queues(), d.QueueNum())
			}
		})
	}
}

// TestCapsFollowNegotiation: what the driver has not agreed to is not offered to
// translation, nor what it has agreed to without its requirements.
func TestCapsFollowNegotiation(t *testing.T) {
	v1 := vhostuser.FVersion1
	for _, tc := range []struct {
		name     string
		features uint64
		want     link.Caps
	}{
		{"nothing", v1, link.Caps{}},
		{"everything", everything, link.Caps{Csum: true, TSO4: true, TSO6: true, USO: true}},
		{"checksums", v1 | Csum, link.Caps{Csum: true}},
		{"TSO without checksums", v1 | TSO, link.Caps{}},
		{"TSO4 alone", v1 | Csum | vhostuser.NetFGuestTSO4, link.Caps{Csum: true, TSO4: true}},
		{"TSO6 alone", v1 | Csum | vhostuser.NetFGuestTSO6, link.Caps{Csum: true, TSO6: true}},
		{"half of USO", v1 | Csum | vhostuser.NetFGuestUSO4, link.Caps{Csum: true}},
		{"bits never offered", v1 | bits(10, 14, 22, 40), link.Caps{}},
	} {
		t.Run(tc.name, func(t *testing.T) {
			d, err := newDevice(t, Config{MTU: 9000})
			if err != nil {
				t.Fatal(err)
			}
			d.Negotiated(tc.features)
			got := d.Caps()
			got.Stats = nil
			tc.want.MTU = 9000
			if got != tc.want {
				t.Errorf("%+v, want %+v", got, tc.want)
			}
		})
	}
}

// TestSmallMergedRing: a ring that cannot hold a super-frame is not sent one.
func TestSmallMergedRing(t *testing.T) {
	for size, want := range map[uint16]bool{64: false, 128: true} {
		if got := newRig(t, ringSize(size)).d.Caps().TSO4; got != want {
			t.Errorf("ring of %d: TSO %v", size, got)
		}
	}
	if !newRig(t, ringSize(32), without(vhostuser.NetFMrgRxbuf)).d.Caps().TSO4 {
		t.Error("unmerged buffers are whole frames, however few")
	}
}

// TestConfigSpace checks the bytes of virtio 1.3, 5.1.4.
func TestConfigSpace(t *testing.T) {
	d, err := newDevice(t, Config{Profile: ProfileUML, MAC: [6]byte{2, 1, 2, 3, 4, 5}, MTU: 0x2328})
	if err != nil {
		t.Fatal(err)
	}
	want := append([]byte{2, 1, 2, 3, 4, 5, 1, 0, 1, 0, 0x28, 0x23}, make([]byte, 244)...)
	got := make([]byte, 256)
	if !d.ReadConfig(got, 0) || !bytes.Equal(got, want) {
		t.Errorf("config % x", got[:16])
	}
	part := make([]byte, 4)
	if !d.ReadConfig(part, 4) || !bytes.Equal(part, want[4:8]) {
		t.Errorf("bytes 4..8 are % x", part)
	}
	for _, tc := range []struct{ n, off int }{{257, 0}, {1, 256}, {4, 253}, {1, -1}, {1, 1<<63 - 1}} {
		if d.ReadConfig(make([]byte, tc.n), tc.off) {
			t.Errorf("M28: %d bytes at %d were read", tc.n, tc.off)
		}
	}
	if d.WriteConfig([]byte{0}, 0) {
		t.Error("M28: a read-only field was written")
	}
}

func TestMTU(t *testing.T) {
	for _, bad := range []int{-1, 1, 67, 65536} {
		if _, err := newDevice(t, Config{MTU: bad}); err == nil {
			t.Errorf("MTU %d accepted", bad)
		}
	}
	d, err := newDevice(t, Config{})
	if err != nil {
		t.Fatal(err)
	}
	if d.Caps().MTU != 1500 || d.SetMTU(67) || d.Caps().MTU != 1500 {
		t.Errorf("MTU %d", d.Caps().MTU)
	}
	if !d.SetMTU(9000) || d.Caps().MTU != 9000 {
		t.Errorf("MTU %d after NET_SET_MTU", d.Caps().MTU)
	}
	d.Disconnected()
	if d.Caps().MTU != 1500 {
		t.Error("the next frontend inherits the MTU of the last")
	}
}

func TestNames(t *testing.T) {
	seen := map[string]bool{}
	s := &Stats{}
	s.Each(func(name string, _ uint64) {
		if seen[name] || name == "" || name == "drop_" {
			t.Errorf("counter %q", name)
		}
		seen[name] = true
	})
	if len(seen) < int(numDrops)+10 || Drop(200).String() != "unknown" {
		t.Errorf("%d counters", len(seen))
	}
	for p := ProfileQEMU; p <= ProfileGeneric; p++ {
		if q, ok := ParseProfile(p.String()); !ok || q != p {
			t.Errorf("profile %v", p)
		}
	}
	if _, ok := ParseProfile("bhyve"); ok {
		t.Error("unknown profile")
	}
}
