package e2e

import (
	"fmt"
	"testing"
)

// `guestwire bridge` on the kernel's AF_VSOCK: in a guest, over its loopback and to its host.
func TestBridgeKernelVSock(t *testing.T) {
	e := newVenv(t, vsetup{})
	e.sh(t, 0, "modprobe vsock_loopback; head -c 20000000 /dev/urandom >/tmp/blob")
	bridge := func(from, to string) {
		t.Helper()
		e.sh(t, 0, fmt.Sprintf("rm -f /tmp/bridge.log; setsid guestwire bridge '%s' '%s' 2>/tmp/bridge.log >/dev/null </dev/null & "+
			"for i in $(seq 100); do grep -q ready /tmp/bridge.log && exit 0; sleep 0.1; done; cat /tmp/bridge.log; exit 1", from, to))
	}
	t.Run("stream", func(t *testing.T) {
		bridge("vsock-listen:5000,buffer=1M", "exec:cat")
		bridge("unix-listen:/tmp/a", "vsock-connect:local:5000,buffer=1M")
		e.sh(t, 0, "guestwire bridge stdio unix-connect:/tmp/a </tmp/blob | cmp - /tmp/blob")
		e.sh(t, 0, "guestwire bridge stdio vsock-connect:3:5000 </tmp/blob | cmp - /tmp/blob")
	})
	t.Run("seqpacket", func(t *testing.T) {
		// Messages of 100,000 bytes, beyond what the peer's buffer holds when some are under way: each must come back whole.
		e.sh(t, 0, `for i in $(seq 150); do printf '\000\001\206\240'; tail -c +$((i * 1000)) /tmp/blob | head -c 100000; done >/tmp/frames`)
		bridge("unix-listen:/tmp/echo", "exec:cat")
		bridge("vsock-listen:5001,type=seqpacket", "unix-connect:/tmp/echo,frame")
		e.sh(t, 0, "guestwire bridge stdio,frame vsock-connect:1:5001,type=seqpacket </tmp/frames >/tmp/back && cmp /tmp/back /tmp/frames")
	})
	t.Run("datagram", func(t *testing.T) {
		e.sh(t, 0, "setsid socat -u UNIX-RECV:/tmp/end SYSTEM:'cat >/tmp/got' >/dev/null 2>&1 &")
		bridge("vsock-listen:5003,frame", "unix-connect:/tmp/end,type=dgram,wait=10s")
		bridge("unix-recv:/tmp/log", "vsock-connect:1:5003,frame")
		e.sh(t, 0, "for m in one two three; do printf \"$m \" | socat - UNIX-SENDTO:/tmp/log; done; "+
			"for i in $(seq 100); do [ \"$(cat /tmp/got)\" = 'one two three ' ] && exit 0; sleep 0.1; done; cat /tmp/got; exit 1")
	})
	t.Run("host", func(t *testing.T) {
		got := e.sh(t, 0, fmt.Sprintf("printf 'echo\\nhello\\n' | guestwire bridge stdio vsock-connect:host:%d", hostPort))
		if got != "hello" {
			t.Errorf("%q", got)
		}
		e.listen(t, fmt.Sprintf("guestwire bridge vsock-listen:%d exec:cat", 7802), 7802)
	})
	t.Run("nobody", func(t *testing.T) {
		out, code := e.g[0].Run("guestwire bridge stdio vsock-connect:1:9 </dev/null 2>&1")
		t.Logf("%d: %s", code, out)
		if code != 1 {
			t.Errorf("exit code %d", code)
		}
	})
}
