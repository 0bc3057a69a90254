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

	"guestwire/test/harness/guest"
)

// A real ssh reaches the sshd of a guest that has no network, as docs/bridge.md shows it.
func TestBridgeSSH(t *testing.T) {
	e := newVenv(t, vsetup{uml: true})
	prog, err := os.ReadFile(shared.guestwire)
	if err != nil {
		t.Fatal(err)
	}
	own := filepath.Join(e.dir, "guest0/host/guestwire") // on the guest's PATH
	_ = os.Remove(own)
	if err := os.WriteFile(own, prog, 0o755); err != nil {
		t.Fatal(err)
	}
	key := filepath.Join(e.dir, "key")
	if out, err := exec.Command("ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", key).CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	public, err := os.ReadFile(key + ".pub")
	if err != nil {
		t.Fatal(err)
	}
	e.sh(t, 0, "ssh-keygen -q -t ed25519 -N '' -f /tmp/hostkey && mkdir -p /run/sshd && echo '"+strings.TrimSpace(string(public))+"' >/tmp/keys && "+
		"printf 'HostKey /tmp/hostkey\\nAuthorizedKeysFile /tmp/keys\\nStrictModes no\\nUsePAM no\\n' >/tmp/sshd_config")
	e.sh(t, 0, "setsid guestwire bridge vsock-listen:22 'exec:/usr/sbin/sshd -i -f /tmp/sshd_config' >/tmp/sshd.log 2>&1 </dev/null &")
	blob := bytes.Repeat([]byte("0123456789abcdef"), 1<<18)
	cmd := exec.Command("timeout", fmt.Sprint(int(guest.CommandTimeout.Seconds())), "ssh", "-F", "none", "-i", key,
		"-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "BatchMode=yes", "-o", "LogLevel=error",
		"-o", fmt.Sprintf("ProxyCommand=%s bridge stdio uds:%s:22,wait=30s", shared.guestwire, e.d.Path(0)), "root@vm", "sha256sum; exit 7")
	cmd.Stdin = bytes.NewReader(blob)
	out, err := cmd.CombinedOutput()
	if want := fmt.Sprintf("%x", sha256.Sum256(blob)); !strings.HasPrefix(string(out), want) || cmd.ProcessState.ExitCode() != 7 {
		t.Errorf("%v: %s, want %s and exit code 7; the guest: %s", err, out, want, e.sh(t, 0, "cat /tmp/sshd.log"))
	}
}
