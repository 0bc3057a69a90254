package worker

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/cmd/config"
	"guestwire/guestagent/proto"
	"guestwire/vsockbridge/packet"
)

// configured is a guest with both devices, on a loop that the test turns.
func configured(t *testing.T, net config.Options, vsock config.VsockOptions) *Worker {
	t.Helper()
	dir := t.TempDir()
	net.SocketPath, net.FD = filepath.Join(dir, "n"), -1
	vsock.SocketPath, vsock.FD, vsock.GuestCID, vsock.UDSPath = filepath.Join(dir, "v"), -1, 3, filepath.Join(dir, "u")
	g, err := (&config.GuestOptions{Net: &net, Vsock: &vsock}).Resolve(config.ReadHostNet)
	if err != nil {
		t.Fatal(err)
	}
	resolv := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(resolv, []byte("nameserver 192.0.2.53\nsearch old.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	w, err := NewOn([]config.Guest{g}, quiet(), Seams{ResolvConf: resolv})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.Close)
	return w
}

// guestEnd is the guest's end of a connection to the configuration's port.
func guestEnd(t *testing.T, w *Worker) *os.File {
	t.Helper()
	fd, connecting, errno := w.guests[0].vsock.configurer.Dial(3, proto.Port, packet.Stream)
	if errno != 0 || connecting {
		t.Fatalf("connecting %v, %v", connecting, errno)
	}
	f := os.NewFile(uintptr(fd), "guest")
	t.Cleanup(func() { f.Close() })
	_ = f.SetReadDeadline(time.Now().Add(5 * time.Second))
	return f
}

// told reads one frame by SPEC.md.
func told(t *testing.T, r *bufio.Reader) map[string]any {
	t.Helper()
	head := make([]byte, 12)
	for i := range head {
		b, err := r.ReadByte()
		if err != nil {
			t.Fatal(err)
		}
		head[i] = b
	}
	if string(head[4:]) != "\x01\x06\x00\x00\x00\x00\x00\x00" {
		t.Fatalf("header %x", head)
	}
	body := make([]byte, binary.BigEndian.Uint32(head)-8)
	for i := range body {
		body[i], _ = r.ReadByte()
	}
	var m map[string]any
	if err := json.Unmarshal(body, &m); err != nil {
		t.Fatalf("%q: %v", body, err)
	}
	return m
}

func equalJSON(t *testing.T, got map[string]any, want string) {
	t.Helper()
	b, _ := json.Marshal(got)
	var m map[string]any
	if err := json.Unmarshal([]byte(want), &m); err != nil {
		t.Fatal(err)
	}
	w, _ := json.Marshal(m)
	if string(b) != string(w) {
		t.Errorf("told\n%s\nwant\n%s", b, w)
	}
}

func TestAnnouncement(t *testing.T) {
	for _, c := range []struct {
		name string
		o    config.Options
		want string
	}{
		{"defaults", config.Options{}, `{"addresses":["10.0.2.15/24","fd67:7765:7374::15/64"],
			"routes":[{"to":"0.0.0.0/0","via":"10.0.2.2"},{"to":"::/0","via":"fd67:7765:7374::2"}],
			"mtu":1500,"dns":["10.0.2.3","fd67:7765:7374::3"],"search":["old.example"]}`},
		{"given", config.Options{IPv4Only: true, Addresses: []string{"192.0.2.7/24"}, Gateways: []string{"192.0.2.1"}, MTU: 9000, Hostname: "vm", DNS: []string{"192.0.2.53"}, Search: []string{"a.example"}},
			`{"addresses":["192.0.2.7/24"],"routes":[{"to":"0.0.0.0/0","via":"192.0.2.1"}],"mtu":9000,"hostname":"vm","dns":["192.0.2.53"],"search":["a.example"]}`},
		{"names that no guest takes", config.Options{IPv4Only: true, Hostname: "vm.", Search: []string{"x;y", "b.example"}},
			`{"addresses":["10.0.2.15/24"],"routes":[{"to":"0.0.0.0/0","via":"10.0.2.2"}],"mtu":1500,"dns":["10.0.2.3"],"search":["b.example"]}`},
	} {
		t.Run(c.name, func(t *testing.T) {
			w := configured(t, c.o, config.VsockOptions{})
			equalJSON(t, told(t, bufio.NewReader(guestEnd(t, w))), c.want)
			if err := w.guests[0].nic.announcement().Check(); err != nil {
				t.Errorf("a guest would refuse it: %v", err)
			}
		})
	}
}

// Whoever is connected learns of a change, and sees the end when the worker ends.
func TestFollowedChange(t *testing.T) {
	w := configured(t, config.Options{IPv4Only: true}, config.VsockOptions{})
	end := guestEnd(t, w)
	r := bufio.NewReader(end)
	if got := told(t, r)["search"]; len(got.([]any)) != 1 {
		t.Errorf("search %v", got)
	}
	if err := os.WriteFile(w.seams.ResolvConf, []byte("nameserver 192.0.2.54\nsearch new.example other.example\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for range 100 {
		if w.guests[0].vsock.configurer.sent > 1 {
			break
		}
		if err := w.loop.Turn(100 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	got := told(t, r)["search"].([]any)
	if len(got) != 2 || got[0] != "new.example" {
		t.Errorf("search %v", got)
	}
	w.guests[0].vsock.configurer.close()
	if _, err := r.ReadByte(); err == nil {
		t.Error("there is more")
	}
}

// A guest that opens too many, says something, or does not read, loses its
// connection, and nothing is left of it.
func TestConfigurationsAreBounded(t *testing.T) {
	w := configured(t, config.Options{}, config.VsockOptions{})
	c := w.guests[0].vsock.configurer
	before := descriptors(t)
	var ends []*os.File
	for range maxListeners {
		ends = append(ends, guestEnd(t, w))
	}
	if _, _, errno := c.Dial(3, proto.Port, packet.Stream); errno != unix.ECONNREFUSED || c.full != 1 {
		t.Errorf("one too many: %v, %d refused", errno, c.full)
	}
	ends[0].Close()
	if _, err := ends[1].Write([]byte("x")); err != nil {
		t.Fatal(err)
	}
	turn(t, w, func() bool { return c.open[0].token == 0 && c.open[1].token == 0 })
	for range 100000 { // the two that do not read
		if c.changed(); c.open[2].token == 0 && c.open[3].token == 0 {
			break
		}
	}
	if c.open[2].token != 0 || c.open[3].token != 0 {
		t.Error("configurations pile up")
	}
	for _, f := range ends {
		f.Close()
	}
	if after := descriptors(t); after != before {
		t.Errorf("%d descriptors before, %d after", before, after)
	}
	guestEnd(t, w) // and there is room again
}

func turn(t *testing.T, w *Worker, until func() bool) {
	t.Helper()
	for range 100 {
		if until() {
			return
		}
		if err := w.loop.Turn(50 * time.Millisecond); err != nil {
			t.Fatal(err)
		}
	}
	t.Error("that does not come")
}

// Other ports are the host's, and a rule for this one is obeyed.
func TestConfigurationPort(t *testing.T) {
	w := configured(t, config.Options{}, config.VsockOptions{})
	c := w.guests[0].vsock.configurer
	if _, _, errno := c.Dial(3, proto.Port+1, packet.Stream); errno != unix.ENOENT {
		t.Errorf("the next port: %v", errno)
	}
	if _, _, errno := c.Dial(3, proto.Port, packet.SeqPacket); errno != unix.ENOENT {
		t.Errorf("seqpacket: %v", errno)
	}
	w = configured(t, config.Options{}, config.VsockOptions{Connect: []string{"vsock:1023=unix:/elsewhere"}})
	if w.guests[0].vsock.configurer != nil {
		t.Error("a rule for the port is not obeyed")
	}
	if s := statistics(w); strings.Contains(s, "configurations") {
		t.Errorf("counters of what is not there:\n%s", s)
	}
}

func statistics(w *Worker) string {
	var b strings.Builder
	w.each(func(name string, _ uint64) { b.WriteString(name + "\n") })
	return b.String()
}
