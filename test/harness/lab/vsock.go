package lab

import (
	"fmt"
	"os"
	"path/filepath"
	"time"

	"guestwire/test/harness/spawn"
)

// The kernel source whose tests are built; its package is in the kernel's suite.
const kernelSource = "linux-source-7.3"

// vsockTests are the programs of tools/testing/vsock that need nothing but a C library.
var vsockTests = []string{"vsock_test", "vsock_perf", "vsock_diag_test"}

// vsockFlags are those of tools/testing/vsock/Makefile without -Werror, with headers of tools/ in place of ones that only a kernel build makes.
const vsockFlags = "-g -O2 -Wall -I. -I../../include -I../../../tools/arch/x86/include -Wno-pointer-sign -fno-strict-overflow -fno-strict-aliasing " +
	"-fno-common -U_FORTIFY_SOURCE -D_GNU_SOURCE"

func (l *Lab) vsockDir() string {
	return filepath.Join(l.Cache, "vsock-"+kernelSource+"-"+recipe(kernelSuite, vsockTests, vsockFlags, 1))
}

// VSockTest is the path of one of the kernel's programs: vsock_test, vsock_perf or vsock_diag_test. They are static and run in any guest.
func (l *Lab) VSockTest(name string) string { return filepath.Join(l.vsockDir(), name) }

// buildVSock takes the three folders out of the source that the programs are made of.
func (l *Lab) buildVSock(dir, final string) error {
	a, err := l.suite(filepath.Join(dir, "apt"), kernelSuite)
	if err != nil {
		return err
	}
	x := filepath.Join(dir, "x")
	if err := a.unpack(x, kernelSource); err != nil {
		return err
	}
	source := filepath.Join(dir, "linux")
	if err := os.MkdirAll(source, 0o755); err != nil {
		return err
	}
	tar := []string{"tar", "-xJf", filepath.Join(x, "usr/src", kernelSource+".tar.xz"), "-C", source, "--strip-components=1"}
	for _, d := range []string{"tools/testing/vsock", "tools/include", "tools/arch/x86/include"} {
		tar = append(tar, kernelSource+"/"+d)
	}
	if _, err := spawn.Run(5*time.Minute, spawn.Options{}, tar...); err != nil {
		return err
	}
	tests := filepath.Join(source, "tools/testing/vsock")
	argv := append([]string{"make", "-C", tests, "CFLAGS=" + vsockFlags, "LDFLAGS=-static -s"}, vsockTests...)
	if out, err := spawn.Run(5*time.Minute, spawn.Options{}, argv...); err != nil {
		return fmt.Errorf("building the kernel's vsock tests: %w\n%s", err, out)
	}
	for _, name := range vsockTests {
		if err := os.Rename(filepath.Join(tests, name), filepath.Join(dir, name)); err != nil {
			return err
		}
	}
	for _, d := range []string{"apt", "x", "linux"} {
		if err := os.RemoveAll(filepath.Join(dir, d)); err != nil {
			return err
		}
	}
	return nil
}
