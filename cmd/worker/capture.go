package worker

import (
	"fmt"
	"os"
	"time"

	"guestwire/vnet/link"
	"guestwire/vnet/link/pcap"
	"guestwire/vring/eventloop"
)

// capture records the guest's frames to a file. It is flushed once a second, so
// that a reader who follows the file sees them soon.
type capture struct {
	*pcap.Capture
	file  *os.File
	loop  *eventloop.Loop
	timer eventloop.TimerID
}

const flushEvery = eventloop.Time(time.Second)

func openCapture(path string, size int64, h link.Handler, loop *eventloop.Loop) (*capture, error) {
	f, err := os.OpenFile(path, os.O_CREATE|os.O_WRONLY|os.O_TRUNC, 0o600)
	if err != nil {
		return nil, fmt.Errorf("--pcap: %w", err)
	}
	c := &capture{
		Capture: pcap.New(pcap.Config{W: f, Size: size, Now: func() int64 { return time.Now().UnixNano() }}, h),
		file:    f, loop: loop,
	}
	c.timer = loop.Timers().New(c, 0)
	loop.Timers().Set(c.timer, loop.Now()+flushEvery)
	return c, nil
}

// Expired implements eventloop.Expirer.
func (c *capture) Expired(uint32) {
	_ = c.Flush() // an error ends the recording, and only that
	c.loop.Timers().Set(c.timer, c.loop.Now()+flushEvery)
}

func (c *capture) close() {
	if c == nil {
		return
	}
	_ = c.Flush()
	_ = c.file.Close()
}
