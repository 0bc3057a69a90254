package e2e

import (
	"bytes"
	"crypto/sha256"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/guest"
	"guestwire/test/harness/spawn"
)

// A real ssh reaches the sshd of a guest that has no network, as docs/bridge.md shows it.
func TestBridgeSSH(t *testing.T) {
	e := newVenv(t, vsetup{uml: true})
	key := filepath.Join(e.dir, "key")
	_ = os.Remove(key) // of a run before this one
	if _, err := spawn.Run(time.Minute, spawn.Options{}, shared.lab.Program("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key)...); err != nil {
		t.Fatal(err)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	e.sh(t, 0, "ssh-keygen -q -t ed25519 -N '' -f /tmp/hostkey && mkdir -p /run/sshd && echo '"+strings.TrimSpace(string(public))+"' >/tmp/keys && "+
		"printf 'HostKey /tmp/hostkey\\nAuthorizedKeysFile /tmp/keys\\nStrictModes no\\nUsePAM no\\n' >/tmp/sshd_config")
	e.sh(t, 0, "setsid guestwire bridge vsock-listen:22 'exec:/usr/sbin/sshd -i -f /tmp/sshd_config' >/tmp/sshd.log 2>&1 </dev/null &")
	blob := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	argv := append([]string{"timeout", fmt.Sprint(int(guest.CommandTimeout.Seconds()))}, shared.lab.Program("ssh", "-F", "none", "-i", key,
		"-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-o", "LogLevel=error",
		"-o", fmt.Sprintf("ProxyCommand=%s bridge stdio uds:%s:22,wait=30s", shared.guestwire, e.d.Path(0)), "root@vm", "sha256sum; exit 7")...)
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Stdin = bytes.NewReader(blob)
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("%x", sha256.Sum256(blob)); !strings.HasPrefix(string(out), want) || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%v: %s, want %s and exit code 7; the guest: %s", err, out, want, e.sh(t, 0, "cat /tmp/sshd.log"))
	}
}
