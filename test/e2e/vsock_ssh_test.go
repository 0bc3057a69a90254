package e2e

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/spawn"
)

// systemd's ssh proxy ("ssh vsock-mux/PATH") speaks the hybrid protocol, reads the OK line in one piece of 9 bytes and hands the socket over to ssh.
func TestVSockSystemdSSHProxy(t *testing.T) {
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
	e.sh(t, 0, "mkdir -p /run/sshd /tmp/ssh && chmod 755 /run/sshd && ssh-keygen -q -t ed25519 -N '' -f /tmp/ssh/host && echo '"+strings.TrimSpace(string(public))+"' > /tmp/ssh/keys && "+
		`printf 'HostKey /tmp/ssh/host\nAuthorizedKeysFile /tmp/ssh/keys\nStrictModes no\nUsePAM no\nPermitRootLogin yes\nLogLevel ERROR\n' > /tmp/ssh/config`)
	e.sh(t, 0, "setsid socat VSOCK-LISTEN:22,fork EXEC:'/usr/sbin/sshd -i -f /tmp/ssh/config' >/tmp/sshd.log 2>&1 & sleep 0.1; true")
	in := strings.Repeat("a line of some text\n", 50000)
	argv := shared.lab.Program("ssh", "-F", "none", "-i", key, "-o", "ProxyCommand="+strings.Join(shared.lab.SSHProxy(), " ")+" vsock-mux"+e.d.Path(0)+" 22",
		"-o", "ProxyUseFdpass=yes", "-o", "UserKnownHostsFile=/dev/null", "-o", "StrictHostKeyChecking=no", "-o", "LogLevel=ERROR", "-o", "BatchMode=yes",
		"root@guest", "sha256sum; exit 7")
	p, err := spawn.Start(spawn.Options{Stdin: strings.NewReader(in)}, argv...)
	if err != nil {
		t.Fatal(err)
	}
	defer p.Kill()
	err = p.Wait(40 * time.Second)
	if want := fmt.Sprintf("%x  -\n", sha256.Sum256([]byte(in))); err == nil || p.ExitCode() != 7 || !strings.Contains(p.Output(), want) {
		t.Errorf("ssh: %v, want exit 7 and the hash %s: %s", err, want, p.Output())
	}
}
