package config

import (
	"slices"
	"testing"
	"time"

	"guestwire/vsockbridge/hostside"
)

// Every option arrives where the worker looks for it.
func TestResolveVsock(t *testing.T) {
	v, err := ResolveVsock(&VsockOptions{
		SocketPath: "/run/v.sock", FD: -1, GuestCID: 7, Groups: []string{"a+b", "c"},
		UDSPath: "/run/v", UDSMode: "0660", UDSOwner: "12:34", OKLine: "short", Wait: "5s",
		Listen: []string{"unix:/run/a,wait=1s=vsock:1"}, Connect: []string{"vsock:2=tcp:127.0.0.1:22"},
		ForwardCID: 1, ForwardListen: "9001+9002",
		TxBufferSize: 1 << 17, MaxConnections: 9, QueueSize: 256, Withhold: VsockWithhold{Seqpacket: true},
	})
	if err != nil {
		t.Fatal(err)
	}
	if v.CID != 7 || v.Host.CID != 7 || !slices.Equal(v.Groups, []string{"a", "b", "c"}) || v.TxBuffer != 1<<17 || v.MaxConns != 9 || !v.Withhold.Seqpacket {
		t.Errorf("got %+v", v)
	}
	h := v.Host
	if h.UDSPath != "/run/v" || h.File != (hostside.File{Mode: 0o660, UID: 12, GID: 34}) || h.OKLine != hostside.OKShort || h.Wait != 5*time.Second || h.ForwardCID != 1 {
		t.Errorf("the host's side is %+v", h)
	}
	var rules []string
	for _, r := range h.Listen {
		rules = append(rules, r.Host.String())
	}
	if want := []string{"unix:/run/a", "vsock:9001", "vsock:9002"}; !slices.Equal(rules, want) || h.Listen[2].Port != 9002 {
		t.Errorf("listens on %v, want %v", rules, want)
	}
	if len(h.Connect) != 1 || h.Connect[0].Host.String() != "tcp:127.0.0.1:22" {
		t.Errorf("connects %+v", h.Connect)
	}
}

func TestVsockDefaults(t *testing.T) {
	v, err := ResolveVsock(&VsockOptions{FD: 5, GuestCID: 3, UDSPath: "/run/v"})
	if err != nil {
		t.Fatal(err)
	}
	if v.FD != 5 || v.TxBuffer != DefaultTxBuffer || v.MaxConns != DefaultMaxConns || v.Host.OKLine != hostside.OKAlways || v.Host.Wait != 0 || v.Host.File.Mode != 0 {
		t.Errorf("got %+v", v)
	}
}
