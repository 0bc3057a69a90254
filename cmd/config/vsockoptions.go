package config

import (
	"fmt"
	"strings"
)

// VsockOptions is the command line of `guestwire vsock` for one guest, one --vm
// list, or the section `vsock` of a guest in a file; as typed, zero values mean
// "not given".
type VsockOptions struct {
	// How the guest is attached.
	SocketPath string `key:"socket-path"`
	FD         int    `key:"fd"` // -1: not given
	Client     bool   `key:"client"`

	GuestCID int64    `key:"guest-cid"`
	Groups   []string `key:"groups"`

	// The host's side.
	UDSPath       string   `key:"uds-path"`
	UDSMode       string   `key:"uds-mode"`
	UDSOwner      string   `key:"uds-owner"`
	OKLine        string   `key:"ok-line"`
	Wait          string   `key:"wait"`
	Listen        []string `key:"listen"`
	Connect       []string `key:"connect"`
	ForwardCID    int64    `key:"forward-cid"`
	ForwardListen string   `key:"forward-listen"`

	// Limits.
	TxBufferSize   int64 `key:"tx-buffer-size"`
	QueueSize      int   `key:"queue-size"`
	MaxConnections int   `key:"max-connections"`

	Poll string `key:"poll"`

	Withhold VsockWithhold
}

// VsockWithhold keeps features of the vsock device from the guest, for odd
// guests and for tests.
type VsockWithhold struct {
	Seqpacket bool `key:"no-seqpacket"`
	EventIdx  bool `key:"no-event-idx"`
	Indirect  bool `key:"no-indirect"`
	InOrder   bool `key:"no-in-order"`
}

// ParseVM reads one --vm list: guest-cid=3,socket=/run/vm.sock,groups=a+b
func ParseVM(s string) (*VsockOptions, error) {
	o := &VsockOptions{FD: -1}
	fields := fileFields(o)
	seen := map[string]bool{}
	for _, item := range strings.Split(s, ",") {
		key, value, ok := strings.Cut(item, "=")
		if !ok {
			return nil, wrong("--vm", s, "%q is no key=value: write guest-cid=3,socket=/run/vm.sock,uds-path=/run/vm.vsock", item)
		}
		f, err := find(fields, key)
		if err == nil {
			err = f.Set(value)
		}
		if err == nil && seen[f.Key] && !isList(f) {
			err = fmt.Errorf("is given twice")
		}
		if err != nil {
			return nil, wrong("--vm", s, "%s: %v", key, err)
		}
		seen[f.Key] = true
	}
	return o, nil
}

// ResolveVMs reads and validates the --vm lists of one command line. As with
// vhost-device-vsock, a guest that names no group is in the group default.
func ResolveVMs(lists []string) ([]Guest, error) {
	var guests []Guest
	for _, s := range lists {
		o, err := ParseVM(s)
		if err != nil {
			return nil, err
		}
		vm := o.vm()
		g, err := vm.Resolve(nil)
		if err != nil {
			return nil, wrong("--vm", s, "%v", err)
		}
		guests = append(guests, g)
	}
	return guests, Clash(guests)
}

const defaultGroup = "default"

// vm is o as one of several guests of `guestwire vsock`.
func (o *VsockOptions) vm() GuestOptions {
	if len(o.Groups) == 0 {
		o.Groups = []string{defaultGroup}
	}
	return GuestOptions{Name: fmt.Sprintf("cid%d", o.GuestCID), Vsock: o}
}

// fileFields are the options that can stand in a file or a list: all but a
// descriptor, which only the process that inherits it can name.
func fileFields(o any) []Field {
	var list []Field
	for _, f := range Fields(o) {
		if f.Key != "fd" {
			list = append(list, f)
		}
	}
	return list
}

func isList(f Field) bool {
	_, ok := f.Ptr.(*[]string)
	return ok
}
