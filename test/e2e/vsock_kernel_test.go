package e2e

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
)

// The ways to the vsock of the host's own kernel (--forward-cid, --forward-listen, rules): the host is a guest here, since nothing may touch this machine's.
func TestVSockHostKernel(t *testing.T) {
	guestwireOnly(t)
	dir := filepath.Join(shared.dir, dirName(t.Name()))
	if err := os.MkdirAll(filepath.Join(dir, "g"), 0o755); err != nil {
		t.Fatal(err)
	}
	binary := filepath.Join(dir, "kernelvsock")
	if _, err := spawn.Run(5*time.Minute, spawn.Options{Dir: shared.lab.Root, Env: []string{"CGO_ENABLED=0"}},
		"go", "test", "-c", "-tags", "guest", "-o", binary, "./test/hostile"); err != nil {
		t.Fatal(err)
	}
	initrds, err := shared.lab.Initrds(dir, shared.guestprog, binary)
	if err != nil {
		t.Fatal(err)
	}
	g, err := guest.StartQEMU(guest.QEMUConfig{Kernel: shared.lab.Vmlinuz(), Initrds: initrds, Dir: filepath.Join(dir, "g"), Accel: shared.accel, Private: true,
		Net: []string{"-netdev", "hubport,id=n0,hubid=0", "-device", "virtio-net-pci,netdev=n0"}}) // a card that leads nowhere
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(g.Stop)
	out, exit := g.RunFor(2*time.Minute, "modprobe vsock_loopback; cd /tmp; kernelvsock -test.run 'TestKernelVSock$' -test.v")
	t.Log(out)
	if exit != 0 {
		t.Errorf("exit %d", exit)
	}
	has(t, out, "--- PASS: TestKernelVSock/every_port_of_--forward-cid", "--- PASS: TestKernelVSock/second_of_--forward-listen", "PASS\n")
}
