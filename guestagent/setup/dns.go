package setup

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"net/netip"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

// maxResolvConf is more than any resolver reads of the file.
const maxResolvConf = 64 << 10

// resolved tells whether systemd-resolved answers for this machine: then the file
// is a link to what it writes, and is not to be written by others.
func (m *machine) resolved() bool {
	to, err := os.Readlink(m.c.ResolvConf)
	if err != nil || !strings.Contains(to, "systemd/resolve/") {
		return false
	}
	_, err = exec.LookPath("resolvectl")
	return err == nil && m.resolvectlAnswers()
}

func (m *machine) resolvectlAnswers() bool {
	_, err := resolvectl("status")
	return err == nil
}

func (m *machine) readDNS(link string) (string, error) {
	if m.resolved() {
		return readResolved(link)
	}
	b, err := os.ReadFile(m.c.ResolvConf)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return "", nil
	case err != nil:
		return "", err
	case len(b) > maxResolvConf:
		return "", fmt.Errorf("%s has %d bytes: that is no resolv.conf", m.c.ResolvConf, len(b))
	}
	return string(b), nil
}

// setDNS writes the file in place: it may be mounted there, and a link leads to
// the file of somebody who is not running.
func (m *machine) setDNS(link, text string) error {
	if m.resolved() {
		return setResolved(link, text)
	}
	path := m.c.ResolvConf
	if to, err := os.Readlink(path); err == nil {
		if !filepath.IsAbs(to) {
			to = filepath.Join(filepath.Dir(path), to)
		}
		if err := os.MkdirAll(filepath.Dir(to), 0o755); err != nil {
			return err
		}
	}
	return os.WriteFile(path, []byte(text), 0o644)
}

const resolvectlTime = 10 * time.Second

func resolvectl(args ...string) (string, error) {
	ctx, cancel := context.WithTimeout(context.Background(), resolvectlTime)
	defer cancel()
	cmd := exec.CommandContext(ctx, "resolvectl", args...)
	cmd.Env = append(os.Environ(), "LC_ALL=C", "SYSTEMD_COLORS=0")
	out, err := cmd.Output()
	var exit *exec.ExitError
	if errors.As(err, &exit) {
		err = fmt.Errorf("resolvectl %s: %w: %s", args[0], err, oneLine(string(exit.Stderr)))
	}
	return string(out), err
}

// readResolved puts what a link has into the form of the file. resolvectl prints
// "Link 2 (eth0): 10.0.2.3 fd67::3", words that are its resolvers or domains.
func readResolved(link string) (string, error) {
	var text strings.Builder
	dns, err := resolvectl("dns", link)
	if err != nil {
		return "", err
	}
	for _, w := range behindColon(dns) {
		if _, err := netip.ParseAddr(w); err == nil {
			text.WriteString("nameserver " + w + "\n")
		}
	}
	domains, err := resolvectl("domain", link)
	if err != nil {
		return "", err
	}
	if list := behindColon(domains); len(list) > 0 {
		text.WriteString("search " + strings.Join(list, " ") + "\n")
	}
	return text.String(), nil
}

func behindColon(s string) []string {
	_, words, _ := strings.Cut(s, "): ")
	return strings.Fields(words)
}

func setResolved(link, text string) error {
	servers, domains := []string{"dns", link}, []string{"domain", link}
	for line := range strings.Lines(text) {
		switch f := strings.Fields(line); {
		case len(f) > 1 && f[0] == "nameserver":
			servers = append(servers, f[1])
		case len(f) > 1 && f[0] == "search":
			domains = append(domains, f[1:]...)
		}
	}
	for _, args := range [][]string{servers, domains} {
		if len(args) == 2 {
			args = append(args, "") // none
		}
		if _, err := resolvectl(args...); err != nil {
			return err
		}
	}
	return nil
}
