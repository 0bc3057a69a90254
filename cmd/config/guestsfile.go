package config

import (
	"errors"
	"strings"

	"github.com/goccy/go-yaml/ast"
	"github.com/goccy/go-yaml/token"
)

// MaxGuests is how many guests one file may hold.
const MaxGuests = 1024

// File is a configuration file as written, guest by guest.
type File struct {
	Guests []GuestOptions

	reader reader
	where  []places // of each guest
}

// places says where in the file a guest stands.
type places struct {
	at         *token.Position
	net, vsock section
}

// ReadGuests reads the file of `guestwire daemon`:
//
//	guests:
//	  NAME:
//	    net: {OPTION: VALUE, ...}      the options of `guestwire net`
//	    vsock: {OPTION: VALUE, ...}    the options of `guestwire vsock`
//
// A File comes back with an error too, but only from one without errors can
// guests be resolved.
func ReadGuests(path string) (*File, error) {
	f := &File{reader: reader{file: path}}
	r := &f.reader
	root := r.root()
	if root == nil {
		return f, r.err()
	}
	for key, value := range r.entries(root) {
		if key.Value != "guests" {
			r.wrong(key.Position, "%v", unknownKey(key.Value, []string{"guests"}))
		} else if m := r.mapping(value, "guests"); m != nil {
			f.readGuests(m)
		}
	}
	if len(f.Guests) == 0 && len(r.errs) == 0 {
		r.wrong(nil, "names no guest: write them below the key guests")
	}
	return f, r.err()
}

func (f *File) readGuests(m *ast.MappingNode) {
	if len(m.Values) > MaxGuests {
		f.reader.wrong(place(m), "%d guests are too many for one daemon: %d at most", len(m.Values), MaxGuests)
		return
	}
	for name, value := range f.reader.entries(m) {
		if err := checkName(name.Value); err != nil {
			f.reader.wrong(name.Position, "%q: %v", name.Value, err)
			continue
		}
		f.readGuest(name.Value, name.Position, value)
	}
}

func (f *File) readGuest(name string, at *token.Position, value ast.Node) {
	r := &f.reader
	m := r.mapping(value, "guest "+name)
	if m == nil {
		return
	}
	g, p := GuestOptions{Name: name}, places{at: at}
	for key, value := range r.entries(m) {
		switch key.Value {
		case "net":
			g.Net = &Options{FD: -1}
			p.net = r.section(value, key.Value, fileFields(g.Net))
		case "vsock":
			g.Vsock = &VsockOptions{FD: -1}
			p.vsock = r.section(value, key.Value, fileFields(g.Vsock))
		default:
			r.wrong(key.Position, "guest %s: %v", name, unknownKey(key.Value, []string{"net", "vsock"}))
		}
	}
	if g.Net == nil && g.Vsock == nil {
		r.wrong(at, "guest %s: has no device: write a section net, vsock or both", name)
	}
	f.Guests = append(f.Guests, g)
	f.where = append(f.where, p)
}

func (r *reader) section(n ast.Node, what string, fields []Field) section {
	m := r.mapping(n, what)
	if m == nil {
		return section{at: place(n)}
	}
	return r.fill(m, fields)
}

// ReadVMs reads the file of `guestwire vsock --config`, which is that of
// vhost-device-vsock: a list vms, each with the keys of --vm ('_' for '-'). As
// there, a guest that names no group is in the group default.
func ReadVMs(path string) (*File, error) {
	f := &File{reader: reader{file: path}}
	r := &f.reader
	root := r.root()
	if root == nil {
		return f, r.err()
	}
	for key, value := range r.entries(root) {
		list, ok := value.(*ast.SequenceNode)
		switch {
		case key.Value != "vms":
			r.wrong(key.Position, "%v", unknownKey(key.Value, []string{"vms"}))
		case !ok || len(list.Values) > MaxGuests:
			r.wrong(place(value), "vms is a list of at most %d VMs, each of them \"- guest_cid: N\" and more keys", MaxGuests)
		default:
			for _, item := range list.Values {
				o := &VsockOptions{FD: -1}
				where := r.section(item, "a VM", fileFields(o))
				f.Guests = append(f.Guests, o.vm())
				f.where = append(f.where, places{at: place(item), vsock: where})
			}
		}
	}
	if len(f.Guests) == 0 && len(r.errs) == 0 {
		r.wrong(nil, "names no VM: write them below the key vms")
	}
	return f, r.err()
}

// Resolve validates every guest, and all of them against each other.
func (f *File) Resolve(host func() (HostNet, error)) ([]Guest, error) {
	r := &f.reader
	guests := make([]Guest, len(f.Guests))
	for i := range f.Guests {
		o, w := &f.Guests[i], &f.where[i]
		guests[i].Name = o.Name
		var err error
		if o.Net != nil {
			if guests[i].Net, err = Resolve(o.Net, host); err != nil {
				r.locate(w.net, o.Name, err)
			}
		}
		if o.Vsock != nil {
			if guests[i].Vsock, err = ResolveVsock(o.Vsock); err != nil {
				r.locate(w.vsock, o.Name, err)
			}
		}
	}
	for _, c := range clashes(guests) {
		r.locate(f.where[c.guest].section(c.device), guests[c.guest].Name, c.err(guests, f.where[c.other].section(c.otherDevice)))
	}
	return guests, r.err()
}

func (p *places) section(device string) section {
	if device == "net" {
		return p.net
	}
	return p.vsock
}

// locate notes an error of an option at the key that it speaks of, or at the
// section where the key is missing.
func (r *reader) locate(s section, guest string, err error) {
	at := s.at
	var e *Error
	if errors.As(err, &e) {
		if e.Option == "--socket-path" && e.Value == "" { // a file has no key for a descriptor
			err = wrong(e.Option, "", "say where the guest connects: write the key socket-path with a path")
		}
		if k := s.keys[strings.TrimPrefix(e.Option, "--")]; k != nil {
			at = k
		}
	}
	if guest != "" {
		r.wrong(at, "guest %s: %v", guest, err)
		return
	}
	r.wrong(at, "%v", err)
}
