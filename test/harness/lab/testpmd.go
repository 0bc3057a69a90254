package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"guestwire/test/harness/spawn"
)

const dpdkSuite = "bookworm" // DPDK 22.11: its plug-ins are named .so.23, and it runs on every later C library

var dpdkPackages = []string{"dpdk-dev", "librte-net-virtio23", "librte-bus-vdev23", "librte-mempool-ring23"}

func (l *Lab) dpdkDir() string {
	return filepath.Join(l.Cache, "dpdk-"+recipe(dpdkSuite, dpdkPackages, 2))
}

var uriLine = regexp.MustCompile(`(?m)^'[^']*/([a-z0-9.+-]+)_[^']*' `)

// buildTestPMD unpacks testpmd and the shared libraries it needs. Nothing is installed: as packages these would bring an init system and a compiler's
// worth of development files along.
func (l *Lab) buildTestPMD(dir, final string) error {
	a, err := l.suite(filepath.Join(dir, "apt"), dpdkSuite)
	if err != nil {
		return err
	}
	out, err := a.run("apt-get", append([]string{"install", "--no-install-recommends", "--print-uris", "-qq"}, dpdkPackages...)...)
	if err != nil {
		return err
	}
	names := []string{"dpdk-dev"}
	for _, m := range uriLine.FindAllStringSubmatch(out, -1) {
		n := m[1]
		if (strings.HasPrefix(n, "lib") || n == "ibverbs-providers") && !strings.HasSuffix(n, "-dev") {
			names = append(names, n)
		}
	}
	if err := a.unpack(dir, names...); err != nil {
		return err
	}
	// Better here than in a test: are all libraries there?
	out, err = spawn.Run(time.Minute, spawn.Options{Env: testpmdEnv(dir)}, "/lib64/ld-linux-x86-64.so.2", "--list", filepath.Join(dir, "usr/bin/dpdk-testpmd"))
	if err != nil {
		return fmt.Errorf("testpmd's libraries: %w: %s", err, out)
	}
	return os.RemoveAll(filepath.Join(dir, "apt"))
}

// testpmdEnv is where testpmd finds its libraries and plug-ins.
func testpmdEnv(dir string) []string {
	var paths []string
	for _, p := range []string{"usr/lib/x86_64-linux-gnu", "lib/x86_64-linux-gnu", "usr/lib/x86_64-linux-gnu/dpdk/pmds-23.0"} {
		paths = append(paths, filepath.Join(dir, p))
	}
	return []string{"LD_LIBRARY_PATH=" + strings.Join(paths, ":")}
}

// TestPMDConfig is one run of testpmd as a vhost-user frontend: a guest that is a single process.
type TestPMDConfig struct {
	Socket  string
	Device  []string // virtio-user options: packed_vq=0, in_order=1, mrg_rxbuf=0, server=1, ...
	Forward string   // txonly, rxonly, io, icmpecho, flowgen
	Args    []string
	Log     string
}

// StartTestPMD runs testpmd; it prints its statistics when it is stopped.
func (l *Lab) StartTestPMD(c TestPMDConfig) (*spawn.Process, error) {
	vdev := strings.Join(append([]string{"net_virtio_user0,path=" + c.Socket}, c.Device...), ",")
	prefix := "gwt" + strings.Map(func(r rune) rune {
		if r == '/' || r == '.' {
			return '-'
		}
		return r
	}, c.Socket)
	if len(prefix) > 40 {
		prefix = prefix[len(prefix)-40:]
	}
	argv := []string{filepath.Join(l.dpdkDir(), "usr/bin/dpdk-testpmd"), "-l", "0-1", "--no-huge", "--no-pci", "-m", "256", "--no-telemetry", "--file-prefix", prefix,
		"-d", "librte_bus_vdev.so.23", "-d", "librte_mempool_ring.so.23", "-d", "librte_net_virtio.so.23", "--vdev", vdev,
		"--", "--total-num-mbufs=4096", "--no-flush-rx", "--forward-mode=" + c.Forward, "--stats-period=1"}
	return spawn.Start(spawn.Options{Log: c.Log, Env: testpmdEnv(l.dpdkDir())}, append(argv, c.Args...)...)
}

// StopTestPMD ends a run and returns all it printed.
func StopTestPMD(p *spawn.Process) string {
	_ = p.Stop(5 * time.Second)
	return p.Output()
}
