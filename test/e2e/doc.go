// Package e2e tests guestwire with real guests: Linux under QEMU and as User Mode Linux, and DPDK's virtio-user, each over vhost-user; QEMU also over
// -netdev stream. The same checks run everywhere, as far as the client can do them; where the real tool exists in the guest (udhcpc, ping, dig, curl,
// traceroute, iperf3) it is the one that is used.
//
// The tests need root and the lab (package lab), which they bring: `make test` runs them. Plain `go test ./...` skips them, it should need neither.
//
//	GUESTWIRE_E2E=1              run them
//	GUESTWIRE_E2E_BACKEND=passt  the same guests and checks against passt: shows what a failure says about guestwire and what about the harness
//	GUESTWIRE_E2E_VSOCK_BACKEND=vhost-device-vsock  the same for the vsock tests
//	GUESTWIRE_BIN=PATH           test this binary instead of a fresh build
//	GUESTWIRE_E2E_KEEP=DIR       keep consoles, logs and captures there
package e2e
