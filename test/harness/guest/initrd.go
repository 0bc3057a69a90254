package guest

import (
	"bytes"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"sort"
	"strings"
)

// Archive builds an initramfs image: cpio in the "newc" format (Linux, Documentation/driver-api/early-userspace/buffer-format.rst). It is not compressed:
// unpacking costs an emulated CPU more than loading.
type Archive struct {
	entries map[string]entry
}

type entry struct {
	mode uint32
	data []byte
}

// File types of the mode field.
const (
	modeDir  = 0o040000
	modeFile = 0o100000
	modeLink = 0o120000
)

// NewArchive is an empty image.
func NewArchive() *Archive { return &Archive{entries: map[string]entry{}} }

// File adds a file and the folders above it.
func (a *Archive) File(name string, data []byte, perm fs.FileMode) {
	a.put(name, entry{modeFile | uint32(perm.Perm()), data})
}

// Link adds a symbolic link.
func (a *Archive) Link(name, target string) { a.put(name, entry{modeLink | 0o777, []byte(target)}) }

// Dir adds a folder.
func (a *Archive) Dir(name string) { a.put(name, entry{modeDir | 0o755, nil}) }

func (a *Archive) put(name string, e entry) {
	name = strings.TrimPrefix(path.Clean("/"+name), "/")
	if name == "" {
		return
	}
	if parent := path.Dir(name); parent != "." {
		if _, ok := a.entries[parent]; !ok {
			a.Dir(parent)
		}
	}
	a.entries[name] = e
}

// Copy adds a file of the host, following links.
func (a *Archive) Copy(name, from string) error {
	b, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	st, err := os.Stat(from)
	if err != nil {
		return err
	}
	a.File(name, b, st.Mode())
	return nil
}

// Bytes is the image.
func (a *Archive) Bytes() []byte {
	var names []string
	for n := range a.entries {
		names = append(names, n)
	}
	sort.Strings(names) // a folder sorts before what is in it
	var b bytes.Buffer
	for i, n := range names {
		writeEntry(&b, i+1, n, a.entries[n])
	}
	writeEntry(&b, 0, "TRAILER!!!", entry{})
	return b.Bytes()
}

func writeEntry(b *bytes.Buffer, ino int, name string, e entry) {
	links := 1
	if e.mode&0o170000 == modeDir {
		links = 2
	}
	fmt.Fprintf(b, "070701%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x%08x", ino, e.mode, 0, 0, links, 0, len(e.data), 0, 0, 0, 0, len(name)+1, 0)
	b.WriteString(name)
	b.WriteByte(0)
	pad(b)
	b.Write(e.data)
	pad(b)
}

func pad(b *bytes.Buffer) {
	for b.Len()%4 != 0 {
		b.WriteByte(0)
	}
}

// concatenate makes one image of several; the kernel unpacks them in order.
func concatenate(to string, parts []string) error {
	out, err := os.Create(to)
	if err != nil {
		return err
	}
	defer out.Close()
	for _, p := range parts {
		f, err := os.Open(filepath.Clean(p))
		if err != nil {
			return err
		}
		_, err = io.Copy(out, f)
		f.Close()
		if err != nil {
			return err
		}
	}
	return out.Close()
}

// QEMUInit is process 1 of a QEMU guest.
const QEMUInit = `#!/bin/sh
export PATH=/bin:/usr/bin:/sbin HOME=/root
mount -t proc proc /proc; mount -t sysfs sysfs /sys; mount -t devtmpfs dev /dev; mount -t tmpfs tmp /tmp; mkdir -p /dev/pts /dev/shm /run /var/run
mount -t devpts devpts /dev/pts; mount -t tmpfs tmp /dev/shm
[ -e /sys/fs/bpf ] && mount -t bpf bpf /sys/fs/bpf
ip link set lo up
modprobe virtio_net; modprobe vmw_vsock_virtio_transport; modprobe vsock_diag
while :; do guestprog agent /dev/ttyS1; sleep 0.2; done
`

// UDHCPCScript is what udhcpc runs on each event: it configures the interface as a distribution's script does, and notes what it was told.
const UDHCPCScript = `#!/bin/sh
env > /tmp/dhcp.$1
case $1 in
deconfig) ip -4 addr flush dev $interface; ip link set $interface up;;
bound|renew)
	[ -n "$mtu" ] && ip link set $interface mtu $mtu
	ip -4 addr replace $ip/$mask dev $interface
	[ -n "$router" ] && ip -4 route replace default via ${router%% *} dev $interface
	: > /tmp/resolv.new
	[ -n "$search$domain" ] && echo search ${search:-$domain} >> /tmp/resolv.new
	for d in $dns; do echo nameserver $d >> /tmp/resolv.new; done
	cat /tmp/resolv.new > /etc/resolv.conf;;
esac
`
