package setup

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"runtime"
	"slices"
	"strings"
	"testing"

	"github.com/vishvananda/netlink"
	"golang.org/x/sys/unix"
)

// inNamespace runs f on a thread with a network and a host name of its own, with
// the cards a and b wired to each other. The thread ends with f.
func inNamespace(t *testing.T, f func(t *testing.T)) {
	t.Helper()
	done := make(chan error)
	go func() {
		runtime.LockOSThread() // and never unlock
		err := unix.Unshare(unix.CLONE_NEWNET | unix.CLONE_NEWUTS)
		defer func() { done <- err }() // also when f ends the goroutine
		if err == nil {
			err = netlink.LinkAdd(&netlink.Veth{LinkAttrs: netlink.LinkAttrs{Name: "a", NumTxQueues: 4, NumRxQueues: 4}, PeerName: "b"})
		}
		if err == nil {
			b, _ := netlink.LinkByName("b")
			err = netlink.LinkSetUp(b) // so that a has a carrier
		}
		if err == nil {
			f(t)
		}
	}()
	switch err := <-done; {
	case errors.Is(err, unix.EPERM):
		t.Skip("needs the right to make a network namespace")
	case err != nil:
		t.Fatal(err)
	}
}

// A DHCPv6 client has the guest's address already, as a /128: it makes room for the
// host's /64, and is back when that is undone.
func TestAddressOfAnotherLength(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2, to see what the kernel has")
	}
	inNamespace(t, func(t *testing.T) {
		for _, args := range []string{"link set dev a up", "address add fd67::15/128 nodad dev a", "address add fd67::99/128 nodad dev a"} {
			if out, err := exec.Command("ip", strings.Fields(args)...).CombinedOutput(); err != nil {
				t.Fatalf("ip %s: %v: %s", args, err, out)
			}
		}
		dir := t.TempDir()
		s := New(Config{Dir: filepath.Join(dir, "run"), ResolvConf: filepath.Join(dir, "resolv.conf")})
		want := network(t, "guestwire.link=a guestwire.address=fd67::15/64 guestwire.gateway=fd67::2")
		for i, most := range []int{5, 0, 0} {
			changes, err := s.Apply(t.Context(), want)
			if err != nil || len(changes) > most {
				t.Errorf("time %d: %v\n%s", i, err, lines(changes))
			}
			got := addresses(t)
			slices.Sort(got)
			equal(t, "addresses", got, []string{"fd67::15/64", "fd67::99/128"})
			equal(t, "routes", routes(t), []string{"default via fd67::2"})
		}
		if _, err := s.Undo(); err != nil {
			t.Error(err)
		}
		got := addresses(t)
		slices.Sort(got)
		equal(t, "addresses afterwards", got, []string{"fd67::15/128", "fd67::99/128"})
	})
}

// ip asks iproute2, which knows nothing of us, on this thread's namespace.
func ip(t *testing.T, args ...string) []map[string]any {
	t.Helper()
	out, err := exec.Command("ip", append([]string{"-j", "-N"}, args...)...).Output()
	if err != nil {
		t.Errorf("ip %v: %v", args, err)
	}
	var list []map[string]any
	if len(strings.TrimSpace(string(out))) > 0 {
		if err := json.Unmarshal(out, &list); err != nil {
			t.Errorf("ip %v: %v", args, err)
		}
	}
	return list
}

func addresses(t *testing.T) (list []string) {
	for _, l := range ip(t, "address", "show", "dev", "a") {
		for _, a := range l["addr_info"].([]any) {
			a := a.(map[string]any)
			if a["scope"] != "253" { // link
				list = append(list, fmt.Sprintf("%v/%v", a["local"], a["prefixlen"]))
			}
		}
	}
	return list
}

func routes(t *testing.T) (list []string) {
	for _, v := range []string{"-4", "-6"} {
		for _, r := range ip(t, v, "route", "show", "dev", "a", "proto", "4") { // static
			list = append(list, strings.TrimSuffix(fmt.Sprintf("%v via %v", r["dst"], r["gateway"]), " via <nil>"))
		}
	}
	return list
}

func equal(t *testing.T, what string, got, want any) {
	t.Helper()
	if !reflect.DeepEqual(got, want) {
		t.Errorf("%s: %v, want %v", what, got, want)
	}
}

func TestNamespace(t *testing.T) {
	if _, err := exec.LookPath("ip"); err != nil {
		t.Skip("needs iproute2, to see what the kernel has")
	}
	inNamespace(t, testNamespace)
}

const resolvBefore = "# by hand\nnameserver 192.0.2.53\n"

func testNamespace(t *testing.T) {
	dir := t.TempDir()
	conf := filepath.Join(dir, "resolv.conf")
	if err := os.WriteFile(conf, []byte(resolvBefore), 0o644); err != nil {
		t.Fatal(err)
	}
	_ = unix.Sethostname([]byte("before"))
	s := New(Config{Dir: filepath.Join(dir, "run"), ResolvConf: conf})
	all := network(t, "guestwire.link=a guestwire.address=10.0.2.15/24,fd67::15/64 guestwire.gateway=10.0.2.2,fd67::2 guestwire.route=10.1.0.0/16,10.0.2.9 guestwire.route=10.2.0.0/16 "+
		"guestwire.mtu=1400 guestwire.hostname=vm guestwire.dns=10.0.2.3 guestwire.search=a.example guestwire.queues=2 guestwire.offloads=tso:off,tx-udp-segmentation:off guestwire.vsock-buffer=65536")

	changes, err := s.Apply(t.Context(), all)
	if err != nil {
		t.Fatal(err)
	}
	if len(changes) < 14 {
		t.Errorf("only %d changes:\n%s", len(changes), lines(changes))
	}
	equal(t, "addresses", addresses(t), []string{"10.0.2.15/24", "fd67::15/64"})
	equal(t, "routes", routes(t), []string{"default via 10.0.2.2", "10.1.0.0/16 via 10.0.2.9", "10.2.0.0/16", "default via fd67::2"})
	equal(t, "mtu", ip(t, "link", "show", "dev", "a")[0]["mtu"], 1400.)
	equal(t, "lo", strings.Contains(fmt.Sprint(ip(t, "link", "show", "dev", "lo")[0]["flags"]), "UP"), true)
	name, _ := os.Hostname()
	equal(t, "hostname", name, "vm")
	text, _ := os.ReadFile(conf)
	equal(t, "resolv.conf", string(text), "nameserver 10.0.2.3\nsearch a.example\n")
	equal(t, "buffer", s.Buffer(), 65536)
	equal(t, "ethtool", ethtoolSays(t, "tx-tcp-segmentation", "tx-udp-segmentation"), []string{"off", "off"})
	equal(t, "queues", queuesInUse(t), []int{2, 2})

	if changes, err = s.Apply(t.Context(), all); err != nil || len(changes) > 0 {
		t.Errorf("the second time: %v, %s", err, lines(changes))
	}

	// The host moves the guest to another network; a route of somebody else stays.
	if err := exec.Command("ip", "route", "add", "198.51.100.0/24", "dev", "a").Run(); err != nil {
		t.Fatal(err)
	}
	moved := network(t, "guestwire.link=a guestwire.address=10.0.3.15/24 guestwire.gateway=10.0.3.2 guestwire.mtu=1300")
	if _, err = s.Apply(t.Context(), moved); err != nil {
		t.Fatal(err)
	}
	equal(t, "addresses", addresses(t), []string{"10.0.3.15/24"})
	equal(t, "routes", routes(t), []string{"default via 10.0.3.2"})
	equal(t, "ethtool", ethtoolSays(t, "tx-tcp-segmentation", "tx-udp-segmentation"), []string{"on", "on"})

	if _, err = s.Undo(); err != nil {
		t.Fatal(err)
	}
	equal(t, "addresses", addresses(t), []string(nil))
	equal(t, "routes", routes(t), []string(nil))
	equal(t, "mtu", ip(t, "link", "show", "dev", "a")[0]["mtu"], 1500.)
	name, _ = os.Hostname()
	equal(t, "hostname", name, "before")
	text, _ = os.ReadFile(conf)
	equal(t, "resolv.conf", string(text), resolvBefore)
	equal(t, "queues", queuesInUse(t), []int{4, 4})
	equal(t, "up", strings.Contains(fmt.Sprint(ip(t, "link", "show", "dev", "a")[0]["flags"]), "UP"), false)
	if changes, err = s.Undo(); err != nil || len(changes) > 0 {
		t.Errorf("undone twice: %v, %s", err, lines(changes))
	}
}

// ethtoolSays asks our own reader, unless ethtool is there.
func ethtoolSays(t *testing.T, names ...string) (list []string) {
	out, err := exec.Command("ethtool", "-k", "a").Output()
	if err != nil {
		l, err := netlink.LinkByName("a")
		if err != nil {
			t.Fatal(err)
		}
		active, err := readFeatures(l.Attrs().Index)
		if err != nil {
			t.Fatal(err)
		}
		for _, n := range names {
			list = append(list, map[bool]string{true: "on", false: "off"}[active[n]])
		}
		return list
	}
	for _, n := range names {
		for line := range strings.Lines(string(out)) {
			if name, v, _ := strings.Cut(strings.TrimSpace(line), ": "); name == n {
				list = append(list, v)
			}
		}
	}
	return list
}

// queuesInUse counts them as sysfs does: those that transmit and receive.
func queuesInUse(t *testing.T) []int {
	l, err := netlink.LinkByName("a")
	if err != nil {
		t.Fatal(err)
	}
	c, err := readChannels(l.Attrs().Index)
	if err != nil {
		t.Fatal(err)
	}
	return []int{int(c.rx), int(c.tx)}
}

func TestDevicesWithout(t *testing.T) {
	inNamespace(t, func(t *testing.T) {
		s := New(Config{Dir: t.TempDir(), ResolvConf: filepath.Join(t.TempDir(), "resolv.conf")})
		for line, want := range map[string]string{
			"guestwire.queues=9":                "queues: 9, was 4: the device has 4 pairs of queues",
			"guestwire.offloads=tx-nonsense:on": "the kernel knows no feature of that name",
			"guestwire.link=c":                  "no network card is called c or has that address; there is",
		} {
			if !strings.Contains(line, "link") {
				line += " guestwire.link=a"
			}
			_, err := s.Apply(atOnce(t), network(t, line))
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", line, err, want)
			}
		}
	})
}
