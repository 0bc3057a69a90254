package e2e

import (
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"guestwire/test/harness/spawn"
)

// What docs/redirect.md tells people to do.
func TestRedirectRecipes(t *testing.T) {
	dir := t.TempDir()
	auth, docker := filepath.Join(dir, "auth"), filepath.Join(dir, "docker.sock")
	e := newVenv(t, vsetup{args: []string{"--connect", "vsock:22022=unix:" + auth, "--connect", "vsock:2375=unix:" + docker}})
	port := func(n int) string { return fmt.Sprintf("%s_%d", e.d.Path(0), n) }
	e.redirect(t, "recipes", "unix:/run/ssh-agent.sock,mode=0600=vsock:2:22022", "unix:/run/docker.sock,mode=0660=vsock:2:2375", "unix-dgram:/dev/log,mode=0666=vsock:2:514")

	t.Run("ssh-agent", func(t *testing.T) {
		if _, err := exec.LookPath("ssh-agent"); err != nil {
			t.Skip("this machine has no ssh-agent")
		}
		p, err := spawn.Start(spawn.Options{}, "ssh-agent", "-D", "-a", auth)
		if err != nil {
			t.Fatal(err)
		}
		defer p.Kill()
		await(t, 10*time.Second, "the agent's socket", func() bool { _, err := os.Stat(auth); return err == nil })
		// ssh-agent does not answer who has ended already, hence the sleep. SSH_AGENTC_REQUEST_IDENTITIES; the answer is SSH_AGENT_IDENTITIES_ANSWER with none (draft-miller-ssh-agent, 3.5).
		out := e.sh(t, 0, `(printf '\0\0\0\1\13'; sleep 1) | socat -t 5 - UNIX-CONNECT:/run/ssh-agent.sock | od -An -tx1 | tr -d ' \n'`)
		if out != "000000050c00000000" {
			t.Errorf("the agent answers %q", out)
		}
	})
	t.Run("docker", func(t *testing.T) {
		l, err := net.Listen("unix", docker)
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		go func() {
			_ = http.Serve(l, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { _, _ = io.WriteString(w, "asked for "+r.URL.Path) }))
		}()
		if out := e.sh(t, 0, `printf 'GET /version HTTP/1.0\r\n\r\n' | socat -t 5 - UNIX-CONNECT:/run/docker.sock`); !strings.HasSuffix(out, "asked for /version") {
			t.Errorf("the server answers %q", out)
		}
	})
	t.Run("log", func(t *testing.T) {
		log := filepath.Join(e.dir, "log")
		l, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: log, Net: "unixgram"})
		if err != nil {
			t.Fatal(err)
		}
		defer l.Close()
		p, err := spawn.Start(spawn.Options{}, shared.guestwire, "bridge", "unix-listen:"+port(514)+",frame", "unix-connect:"+log+",type=dgram")
		if err != nil {
			t.Fatal(err)
		}
		defer p.Kill()
		if err := p.WaitOutput("ready", 10*time.Second); err != nil {
			t.Fatal(err)
		}
		e.sh(t, 0, "logger -t one 'the first message'; logger -t two 'the second'")
		_ = l.SetReadDeadline(time.Now().Add(20 * time.Second))
		b := make([]byte, 4096)
		for _, want := range []string{"one: the first message", "two: the second"} {
			n, err := l.Read(b)
			if err != nil || !strings.HasSuffix(strings.TrimRight(string(b[:n]), "\n\x00"), want) {
				t.Errorf("got %q, %v, want %q", b[:n], err, want)
			}
		}
	})
}
