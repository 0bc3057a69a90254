package worker

import (
	"net/netip"
	"os"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/translate/dns"
)

const resolvConf = "/etc/resolv.conf"

// resolver is the host's resolver configuration as the loop sees it. The
// watcher goroutine reads the file and hands changes over by the loop's mailbox,
// so the fields belong to the loop.
type resolver struct {
	fixedUp     []netip.AddrPort // --dns-host
	fixedSearch []string         // --search
	upstreams   []netip.AddrPort
	search      []string
}

var _ dns.Resolver = (*resolver)(nil)

func (r *resolver) Upstreams() []netip.AddrPort { return r.upstreams }
func (r *resolver) Search() []string            { return r.search }

// fixed says that the host's resolv.conf is of no interest.
func (r *resolver) fixed() bool { return len(r.fixedUp) > 0 && len(r.fixedSearch) > 0 }

// set takes what the file says now and reports whether anything changed. A file
// that is gone or empty leaves no resolver: queries get SERVFAIL until it is
// back.
func (r *resolver) set(c dns.ResolvConf) bool {
	up, search := c.Upstreams(), c.Search()
	if len(r.fixedUp) > 0 {
		up = r.fixedUp
	}
	if len(r.fixedSearch) > 0 {
		search = r.fixedSearch
	}
	if slices.Equal(up, r.upstreams) && slices.Equal(search, r.search) {
		return false
	}
	r.upstreams, r.search = slices.Clone(up), slices.Clone(search)
	return true
}

func readResolvConf(path string) dns.ResolvConf {
	b, err := os.ReadFile(path)
	if err != nil {
		return dns.ResolvConf{}
	}
	return dns.ParseResolvConf(b)
}

// watcher follows resolv.conf by inotify: on the folders that its name and its
// links lead through, since editors and network managers replace the file, and
// on the file.
type watcher struct {
	path   string
	events *os.File
	done   sync.WaitGroup
}

// settle is how long a burst of changes may last before the file is read.
const settle = 50 * time.Millisecond

// watchResolvConf calls changed, from a goroutine of its own, with every new
// content. It returns nil where the kernel has no inotify watch to give: then
// the configuration stays what it was at start.
func watchResolvConf(path string, changed func(dns.ResolvConf)) *watcher {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return nil
	}
	w := &watcher{path: path, events: os.NewFile(uintptr(fd), "inotify")}
	w.watchAll(fd)
	w.done.Add(1)
	go func() {
		defer w.done.Done()
		buf := make([]byte, 4096)
		for {
			if _, err := w.events.Read(buf); err != nil {
				return
			}
			time.Sleep(settle)
			w.watchAll(fd)
			changed(readResolvConf(path))
		}
	}()
	return w
}

// watchAll adds the folder of the file and of each link on the way to it, and
// the file itself: a container engine rewrites the one that it has mounted there
// from outside, of which the folder learns nothing. Adding a watch that is there
// already changes nothing; a file that was replaced is a new one to watch.
func (w *watcher) watchAll(fd int) {
	const folder = unix.IN_CLOSE_WRITE | unix.IN_MOVED_TO | unix.IN_CREATE | unix.IN_DELETE | unix.IN_ONLYDIR
	_, _ = unix.InotifyAddWatch(fd, w.path, unix.IN_MODIFY|unix.IN_CLOSE_WRITE)
	path := w.path
	for range 8 { // links on the way; a loop ends here
		_, _ = unix.InotifyAddWatch(fd, filepath.Dir(path), folder)
		to, err := os.Readlink(path)
		if err != nil {
			return
		}
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		path = to
	}
}

func (w *watcher) close() {
	if w == nil {
		return
	}
	_ = w.events.Close()
	w.done.Wait()
}
