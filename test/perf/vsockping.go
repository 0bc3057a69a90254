package main

import (
	"fmt"

	"golang.org/x/sys/unix"

	"guestwire/test/harness/vsock"
)

// latency measures small requests, on one connection and on one each.
func (s *vsockBed) latency(round int) error {
	const trips, conns = 3000, 500
	fd, err := vsock.ListenUNIX(fmt.Sprintf("%s_%d", s.d.Path(0), vsockPingPort))
	if err != nil {
		return err
	}
	ended := make(chan error, 1)
	go func() { ended <- vsock.PingServer(fd) }()
	defer func() {
		_ = unix.Shutdown(fd, unix.SHUT_RD) // accept returns
		<-ended
		unix.Close(fd)
	}()
	v, err := s.run(fmt.Sprintf("pings %d %d", vsockPingPort, trips))
	if err != nil {
		return err
	}
	s.add("round trip of 64 B, p50", "us", round, v[0])
	s.add("round trip of 64 B, p99", "us", round, v[1])
	s.add("500 x connect, echo, close by the guest", "ms", round, v[2]/1e3/trips*conns)
	if _, err := s.g.Check(fmt.Sprintf("setsid guestprog serve-pings %d >/tmp/pings.log 2>&1 & for i in $(seq 100); do grep -q serving /tmp/pings.log && exit 0; sleep 0.1; done; exit 1", vsockPingPort)); err != nil {
		return err
	}
	took, err := vsock.PingEach(vsock.ToGuest(s.d.Path(0), vsockPingPort), conns)
	if err != nil {
		return err
	}
	s.add("500 x connect, echo, close by the host", "ms", round, float64(took.Microseconds())/1e3)
	return nil
}
