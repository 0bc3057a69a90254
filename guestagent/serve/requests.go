package serve

import (
	"context"
	"fmt"
	"net"
	"os"
	"runtime"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/guestagent/proto"
	"guestwire/guestagent/setup"
)

// answer does what a request asks. An error is the host's to read.
func (s *Server) answer(ctx context.Context, f *proto.Frame) (any, error) {
	switch f.Kind {
	case proto.Ping:
		return proto.Pong{Version: s.c.Version, Clock: s.clock.now().UnixNano()}, proto.Request(f.Body, &proto.Empty{})
	case proto.Info:
		if err := proto.Request(f.Body, &proto.Empty{}); err != nil {
			return nil, err
		}
		return s.info()
	case proto.Expose:
		var r proto.ExposeRequest
		if err := proto.Request(f.Body, &r); err != nil {
			return nil, err
		}
		return s.expose(ctx, &r)
	case proto.Time:
		var r proto.TimeRequest
		if err := proto.Request(f.Body, &r); err != nil {
			return nil, err
		}
		set, err := setClock(s.clock, &r)
		if err == nil && set.Did != proto.Kept {
			s.c.Told("the host has set the clock, which was %v behind: %s", time.Duration(set.Offset), set.Did)
		}
		return set, err
	case proto.Setup:
		var r proto.SetupRequest
		if err := proto.Request(f.Body, &r); err != nil {
			return nil, err
		}
		return s.setup(ctx, &r)
	}
	return nil, fmt.Errorf("this agent (%s) does not know requests of kind %d", s.c.Version, f.Kind)
}

func (s *Server) expose(ctx context.Context, r *proto.ExposeRequest) (any, error) {
	if r.Stop {
		e, err := s.exposed.stop(r.Port)
		if err == nil {
			s.c.Told("the host has %s no longer at vsock port %d", e.Target, e.Port)
		}
		return e, err
	}
	e, err := s.exposed.start(ctx, r.Target, r.Port)
	if err == nil {
		s.c.Told("the host has %s at vsock port %d", e.Target, e.Port)
	}
	return e, err
}

func (s *Server) setup(ctx context.Context, r *proto.SetupRequest) (any, error) {
	var changes []setup.Change
	var err error
	if r.Undo {
		changes, err = s.c.Setup.Undo()
	} else {
		ctx, cancel := context.WithTimeout(ctx, setupTime)
		defer cancel()
		changes, err = s.c.Setup.Apply(ctx, r.Config)
	}
	made := proto.Changed{Changes: []string{}}
	for _, c := range changes[:min(len(changes), proto.MaxChanges)] {
		s.c.Told("the host has set %v", c)
		made.Changes = append(made.Changes, proto.Text(c.String()))
	}
	return made, err
}

// info describes the guest. What cannot be found out is left out.
func (s *Server) info() (any, error) {
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return nil, err
	}
	var si unix.Sysinfo_t
	if err := unix.Sysinfo(&si); err != nil {
		return nil, err
	}
	const loadUnit = 1 << 16 // SI_LOAD_SHIFT
	g := proto.GuestInfo{
		Version: s.c.Version, Hostname: name(u.Nodename[:]), Kernel: name(u.Release[:]), Arch: name(u.Machine[:]),
		CPUs: runtime.NumCPU(), Uptime: int64(si.Uptime), Memory: uint64(si.Totalram) * uint64(si.Unit) >> 10, Available: available(),
		Exposed: s.exposed.list(),
	}
	for i := range g.Load {
		g.Load[i] = float64(si.Loads[i]) / loadUnit
	}
	var err error
	g.Links, err = links()
	return g, err
}

func name(b []byte) string {
	s := proto.Text(unix.ByteSliceToString(b))
	return s[:min(len(s), proto.MaxName)]
}

// available is the memory that programs can have, in KiB.
func available() uint64 {
	b, _ := os.ReadFile("/proc/meminfo")
	for line := range strings.Lines(string(b)) {
		if f := strings.Fields(line); len(f) > 1 && f[0] == "MemAvailable:" {
			n, _ := strconv.ParseUint(f[1], 10, 64)
			return n
		}
	}
	return 0
}

func links() ([]proto.Link, error) {
	all, err := net.Interfaces()
	if err != nil {
		return nil, err
	}
	list := []proto.Link{}
	for _, i := range all[:min(len(all), proto.MaxLinks)] {
		l := proto.Link{Name: i.Name, MAC: i.HardwareAddr.String(), MTU: i.MTU, Up: i.Flags&net.FlagUp != 0, Addresses: []string{}}
		addrs, err := i.Addrs()
		if err != nil {
			continue // it has gone meanwhile
		}
		for _, a := range addrs[:min(len(addrs), proto.MaxPerLink)] {
			l.Addresses = append(l.Addresses, a.String())
		}
		list = append(list, l)
	}
	return list, nil
}

// clock is the guest's clock.
type clock interface {
	now() time.Time
	step(to time.Time) error
	slew(by time.Duration) error
}

// Offsets below exact are within what the way from the host takes; those from
// large on would take the kernel more than a quarter of an hour to slew, at 0.5
// ms/s.
const (
	exact = time.Millisecond
	large = 500 * time.Millisecond
)

// setClock sets the clock to the host's.
func setClock(c clock, r *proto.TimeRequest) (proto.TimeSet, error) {
	is := c.now()
	offset := time.Unix(0, r.Now).Sub(is)
	set := proto.TimeSet{Offset: int64(offset), Did: r.How}
	switch size := max(offset, -offset); {
	case size < exact:
		set.Did = proto.Kept
	case r.How == proto.Step || r.How == proto.Slew:
	case size < large:
		set.Did = proto.Slew
	default:
		set.Did = proto.Step
	}
	var err error
	switch set.Did {
	case proto.Step:
		err = c.step(is.Add(offset))
	case proto.Slew:
		err = c.slew(offset)
	}
	return set, err
}

type systemClock struct{}

func (systemClock) now() time.Time { return time.Now().Round(0) } // the wall clock, not the monotonic one

func (systemClock) step(to time.Time) error {
	t := unix.NsecToTimespec(to.UnixNano())
	return mayNot(unix.ClockSettime(unix.CLOCK_REALTIME, &t))
}

// slew has the kernel make the clock run a little faster or slower until the
// offset is gone, as adjtime(3) does.
func (systemClock) slew(by time.Duration) error {
	_, err := unix.Adjtimex(&unix.Timex{Modes: unix.ADJ_OFFSET_SINGLESHOT, Offset: by.Microseconds()})
	return mayNot(err)
}

func mayNot(err error) error {
	if err == unix.EPERM {
		return fmt.Errorf("set the clock: %w: the agent needs CAP_SYS_TIME (run it as root)", err)
	}
	return err
}
