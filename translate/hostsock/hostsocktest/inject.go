package hostsocktest

import (
	"slices"
	"syscall"
)

// fault is one planned failure: of the call that left counts down to.
type fault struct {
	left  int
	errno syscall.Errno
}

var methods = []string{"Dial", "Listen", "Accept", "Refuse", "Close", "Shutdown", "Watch", "Rewatch", "Again", "AgainAt",
	"Writev", "Readv", "Peekv", "SetPeekOffset", "Discard", "Send", "Recv", "Errors", "SocketError", "Info",
	"LocalAddr", "SetMSS", "SetTTL", "SetKeepalive"}

// FailNext has the next call of method return e and do nothing else. (Close and
// Again return nothing, so they cannot fail.)
func (k *Kernel) FailNext(method string, e syscall.Errno) { k.FailAt(method, 1, e) }

// FailAt has the n-th call of method from now on (1 is the next) fail with e.
func (k *Kernel) FailAt(method string, n int, e syscall.Errno) {
	k.t.Helper()
	if !slices.Contains(methods, method) {
		k.t.Fatalf("hostsocktest: Host has no method %q", method)
	}
	k.faults[method] = append(k.faults[method], fault{n, e})
}

// Calls returns how often method has been called.
func (k *Kernel) Calls(method string) int { return k.calls[method] }

// fault counts a call of method and returns the errno planned for it.
func (k *Kernel) fault(method string) (e syscall.Errno) {
	k.calls[method]++
	k.faults[method] = slices.DeleteFunc(k.faults[method], func(f fault) bool { return f.left <= 0 })
	for i := range k.faults[method] {
		f := &k.faults[method][i]
		if f.left--; f.left == 0 {
			e = f.errno
		}
	}
	return e
}
