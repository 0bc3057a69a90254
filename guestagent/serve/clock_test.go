package serve

import (
	"errors"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"guestwire/guestagent/proto"
)

type fakeClock struct {
	at      time.Time
	slewing time.Duration
	err     error
}

func (c *fakeClock) now() time.Time { return c.at }
func (c *fakeClock) step(to time.Time) error {
	if c.err == nil {
		c.at = to
	}
	return mayNot(c.err)
}
func (c *fakeClock) slew(by time.Duration) error { c.slewing = by; return mayNot(c.err) }

func TestSetClock(t *testing.T) {
	at := time.Date(2026, 3, 1, 12, 0, 0, 0, time.UTC)
	for _, c := range []struct {
		behind time.Duration
		how    string
		did    string
	}{
		{0, "", proto.Kept},
		{999 * time.Microsecond, "", proto.Kept},
		{-999 * time.Microsecond, proto.Step, proto.Kept},
		{time.Millisecond, "", proto.Slew},
		{-499 * time.Millisecond, proto.Auto, proto.Slew},
		{500 * time.Millisecond, "", proto.Step},
		{-500 * time.Millisecond, "", proto.Step},
		{20 * 365 * 24 * time.Hour, "", proto.Step},
		{2 * time.Millisecond, proto.Step, proto.Step},
		{time.Second, proto.Slew, proto.Slew},
	} {
		k := &fakeClock{at: at}
		got, err := setClock(k, &proto.TimeRequest{Now: at.Add(c.behind).UnixNano(), How: c.how})
		if err != nil || got != (proto.TimeSet{Offset: int64(c.behind), Did: c.did}) {
			t.Errorf("%v %q: %+v, %v, want %s", c.behind, c.how, got, err, c.did)
		}
		stepped, slewed := !k.at.Equal(at), k.slewing != 0
		if stepped != (c.did == proto.Step) || slewed != (c.did == proto.Slew) || stepped && !k.at.Equal(at.Add(c.behind)) || slewed && k.slewing != c.behind {
			t.Errorf("%v %q: the clock is at %v, slewing by %v", c.behind, c.how, k.at, k.slewing)
		}
	}
	for how := range map[string]bool{proto.Step: true, proto.Slew: true} {
		_, err := setClock(&fakeClock{at: at, err: unix.EPERM}, &proto.TimeRequest{Now: at.Add(time.Hour).UnixNano(), How: how})
		if !errors.Is(err, unix.EPERM) || !strings.Contains(err.Error(), "CAP_SYS_TIME") {
			t.Errorf("%s without the right to: %v", how, err)
		}
	}
}
