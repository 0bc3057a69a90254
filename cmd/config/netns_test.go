package config

import (
	"fmt"
	"strings"
	"testing"
)

func TestNetnsDefaults(t *testing.T) {
	n, err := ResolveNetns(&NetnsOptions{}, noHost)
	if err != nil {
		t.Fatal(err)
	}
	if n.Net.Transport != Tap || n.Net.FD != -1 || n.Net.MTU != 65520 || n.IfName != "eth0" || len(n.Out) != 0 || n.Auto != (Auto{}) {
		t.Errorf("%+v, net %+v", n, n.Net)
	}
}

func TestNetnsForwards(t *testing.T) {
	n, err := ResolveNetns(&NetnsOptions{
		Net:    Options{TCPPorts: []string{"auto"}, UDPPorts: []string{"53:5353"}},
		TCPOut: []string{"80:8080", "127.0.0.2/90:9090"}, UDPOut: []string{"auto"},
	}, noHost)
	if err != nil {
		t.Fatal(err)
	}
	if want := (Auto{TCPIn: true, UDPOut: true}); n.Auto != want {
		t.Errorf("auto: %+v, want %+v", n.Auto, want)
	}
	if len(n.Net.Forwards) != 1 || n.Net.Forwards[0].ToFirst != 5353 {
		t.Errorf("in: %v", n.Net.Forwards)
	}
	if got := fmt.Sprint(n.Out); got != "[80:8080 127.0.0.2/90:9090]" {
		t.Errorf("out: %s", got)
	}
}

// Every wrong option is answered by what would be right.
func TestNetnsWrong(t *testing.T) {
	for _, tt := range []struct {
		o    NetnsOptions
		says []string
	}{
		{NetnsOptions{IfName: "a/b"}, []string{"--ns-ifname", "a/b", "1 to 15"}},
		{NetnsOptions{IfName: "sixteen-letters-"}, []string{"--ns-ifname", "1 to 15"}},
		{NetnsOptions{Net: Options{TCPPorts: []string{"auto", "80"}}}, []string{"--tcp-ports", "80", "auto"}},
		{NetnsOptions{TCPOut: []string{"x"}}, []string{"--tcp-ns", "x"}},
		{NetnsOptions{TCPOut: []string{"0:80"}}, []string{"--tcp-ns", "which port"}},
		{NetnsOptions{UDPOut: []string{"80:192.0.2.1/80"}}, []string{"--udp-ns", "loopback"}},
		{NetnsOptions{UDPOut: []string{"127.0.0.1%eth0/80"}}, []string{"--udp-ns", "interface"}},
		{NetnsOptions{Net: Options{MTU: 5}}, []string{"--mtu", "1280"}},
	} {
		_, err := ResolveNetns(&tt.o, noHost)
		for _, s := range tt.says {
			if err == nil || !strings.Contains(err.Error(), s) {
				t.Errorf("%+v: %v, want %q in it", tt.o, err, s)
			}
		}
	}
}
