package lab

import (
	"errors"
	"fmt"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"time"

	"guestwire/test/harness/spawn"
)

// Packages of this machine, by what needs them.
var (
	always    = []string{"iproute2", "xz-utils", "kmod"}
	forTree   = []string{"debootstrap", "patchelf"}
	forKernel = []string{"qemu-system-x86", "busybox-static"}
	forVSock  = []string{"gcc", "make", "libc6-dev"}
)

// packages installs the Debian packages that are missing.
func (l *Lab) packages(parts Part) error {
	need := append([]string{}, always...)
	if parts&Tree != 0 {
		need = append(need, forTree...)
	}
	if parts&(Kernel|StableKernel) != 0 {
		need = append(need, forKernel...)
	}
	if parts&VSock != 0 {
		need = append(need, forVSock...)
	}
	missing := notInstalled(need)
	if os.Geteuid() != 0 {
		return notRoot(missing)
	}
	if len(missing) == 0 {
		return nil
	}
	if _, err := exec.LookPath("apt-get"); err != nil {
		return fmt.Errorf("this is not a Debian machine; what is needed is what Debian calls: %s", strings.Join(missing, " "))
	}
	unlock, err := l.lock("packages", "Debian packages")
	if err != nil {
		return err
	}
	defer unlock()
	if missing = notInstalled(need); len(missing) == 0 {
		return nil
	}
	l.say("installing %s", strings.Join(missing, " "))
	if err := l.aptGet(5*time.Minute, "update", "-qq"); err != nil {
		return err
	}
	args := append([]string{"install", "-y", "-qq", "--no-install-recommends", "-o", "DPkg::Lock::Timeout=300"}, missing...)
	return l.aptGet(15*time.Minute, args...)
}

// notRoot says what root is needed for and what would have to be there.
func notRoot(missing []string) error {
	say := "this has to run as root: the network of the guests is made of network namespaces"
	if len(missing) > 0 {
		say += fmt.Sprintf("\nroot would also install what is missing here; by hand that is\n\tapt-get install --no-install-recommends %s", strings.Join(missing, " "))
	}
	return errors.New(say)
}

func (l *Lab) aptGet(limit time.Duration, args ...string) error {
	_, err := spawn.Run(limit, spawn.Options{Env: []string{"DEBIAN_FRONTEND=noninteractive"}}, append([]string{"apt-get"}, args...)...)
	return err
}

func notInstalled(names []string) (missing []string) {
	out, _ := exec.Command("dpkg-query", append([]string{"-W", "-f", "${Package} ${db:Status-Status}\n"}, names...)...).Output()
	for _, n := range names {
		if !strings.Contains("\n"+string(out), "\n"+n+" installed\n") {
			missing = append(missing, n)
		}
	}
	return missing
}

// debianMirror is the Debian archive that this machine's apt uses.
func (l *Lab) debianMirror() (string, error) {
	if l.mirror != "" {
		return l.mirror, nil
	}
	out, err := exec.Command("apt-get", "indextargets", "--format", "$(REPO_URI)", "Created-By: Packages").Output()
	if err != nil {
		return "", fmt.Errorf("apt-get indextargets: %w", err)
	}
	for _, uri := range strings.Fields(string(out)) {
		u, err := url.Parse(uri)
		if err == nil && (u.Scheme == "http" || u.Scheme == "https") && strings.HasSuffix(strings.TrimRight(u.Path, "/"), "/debian") {
			l.mirror = strings.TrimRight(uri, "/")
			return l.mirror, nil
		}
	}
	return "", errors.New("apt on this machine is not configured with a Debian archive (no source whose path ends in /debian)")
}

// archive is one suite of the mirror behind a private apt: own lists, own cache, the machine's apt is not touched.
type archive struct {
	dir  string
	args []string
}

var debianRing = "/usr/share/keyrings/debian-archive-keyring.gpg"

func (l *Lab) suite(dir, suite string) (*archive, error) {
	mirror, err := l.debianMirror()
	if err != nil {
		return nil, err
	}
	a := &archive{dir: dir}
	for _, d := range []string{"lists/partial", "cache/archives/partial"} {
		if err := os.MkdirAll(filepath.Join(dir, d), 0o755); err != nil {
			return nil, err
		}
	}
	list := filepath.Join(dir, "sources.list")
	if err := os.WriteFile(list, fmt.Appendf(nil, "deb [signed-by=%s] %s %s main\n", debianRing, mirror, suite), 0o644); err != nil {
		return nil, err
	}
	for _, o := range []string{"Dir::Etc::sourcelist=" + list, "Dir::Etc::sourceparts=/dev/null", "Dir::State::Lists=" + filepath.Join(dir, "lists"),
		"Dir::Cache=" + filepath.Join(dir, "cache"), "APT::Sandbox::User=root", "Acquire::Retries=3"} {
		a.args = append(a.args, "-o", o)
	}
	_, err = a.run("apt-get", "update", "-qq")
	return a, err
}

func (a *archive) run(tool string, args ...string) (string, error) {
	return spawn.Run(10*time.Minute, spawn.Options{Dir: a.dir}, append(append([]string{tool}, a.args...), args...)...)
}

// unpack downloads packages and unpacks them into a folder.
func (a *archive) unpack(into string, names ...string) error {
	debs := filepath.Join(a.dir, "debs")
	if err := os.MkdirAll(debs, 0o755); err != nil {
		return err
	}
	argv := append(append([]string{"apt-get"}, a.args...), append([]string{"download", "-qq"}, names...)...)
	if _, err := spawn.Run(15*time.Minute, spawn.Options{Dir: debs}, argv...); err != nil {
		return err
	}
	files, err := filepath.Glob(filepath.Join(debs, "*.deb"))
	if err != nil {
		return err
	}
	for _, f := range files {
		if _, err := spawn.Run(5*time.Minute, spawn.Options{}, "dpkg-deb", "-x", f, into); err != nil {
			return err
		}
	}
	return os.RemoveAll(debs)
}

// depends is the first dependency of a package that matches the pattern's group.
func (a *archive) depends(name string, pattern *regexp.Regexp) (string, error) {
	out, err := a.run("apt-cache", "depends", name)
	if err != nil {
		return "", err
	}
	m := pattern.FindStringSubmatch(out)
	if m == nil {
		return "", fmt.Errorf("%s depends on nothing like %s:\n%s", name, pattern, out)
	}
	return m[1], nil
}
