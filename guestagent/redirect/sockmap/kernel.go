package sockmap

import (
	"fmt"
	"regexp"
	"strconv"

	"golang.org/x/sys/unix"
)

// Kernels below these lose, repeat or leak bytes that a sockmap redirects to
// vsock: data dropped when a send was retried and transmissions that came twice
// were mended in 6.16 and, for those who stay with 6.12, in 6.12.35.
var (
	floor     = version{6, 16, 0}
	longFloor = version{6, 12, 35}
)

type version [3]int

func (v version) String() string { return fmt.Sprintf("%d.%d.%d", v[0], v[1], v[2]) }

func (v version) below(w version) bool {
	for i := range v {
		if v[i] != w[i] {
			return v[i] < w[i]
		}
	}
	return false
}

var (
	// debianVersion is how Debian names the stable release that its kernel has,
	// in `uname -v`, since its older names in `uname -r` do not tell.
	debianVersion = regexp.MustCompile(`Debian (\d+)\.(\d+)\.(\d+)`)
	anyVersion    = regexp.MustCompile(`^(\d+)\.(\d+)(?:\.(\d+))?`)
)

// parseVersion reads what `uname -r` and `uname -v` print.
func parseVersion(release, build string) (v version, ok bool) {
	m := debianVersion.FindStringSubmatch(build)
	if m == nil {
		m = anyVersion.FindStringSubmatch(release)
	}
	if m == nil {
		return v, false
	}
	for i := range v {
		v[i], _ = strconv.Atoi(m[i+1]) // "" is 0
	}
	return v, true
}

// checkVersion tells why a kernel is not to be trusted with this.
func checkVersion(release, build string) error {
	v, ok := parseVersion(release, build)
	switch {
	case !ok:
		return fmt.Errorf("the kernel's version is not to be read from %q", release)
	case v[0] == longFloor[0] && v[1] == longFloor[1] && !v.below(longFloor):
		return nil
	case v.below(floor):
		return fmt.Errorf("kernel %v redirects to vsock with losses: it takes %d.%d, or %v", v, floor[0], floor[1], longFloor)
	}
	return nil
}

func checkKernel() error {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return err
	}
	return checkVersion(unix.ByteSliceToString(u.Release[:]), unix.ByteSliceToString(u.Version[:]))
}
