package proto

import (
	"fmt"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Limits of the messages.
const (
	MaxText    = 4096 // bytes of a line for people
	MaxName    = 256  // bytes of a name
	MaxLinks   = 256
	MaxPerLink = 256 // addresses
	MaxExposed = 16
	MaxChanges = 512
	MaxTarget  = 256        // bytes
	anyPort    = ^uint32(0) // VMADDR_PORT_ANY
)

// Empty is a request that asks for nothing but its kind.
type Empty struct{}

func (*Empty) Check() error { return nil }

// Failure is the body of No.
type Failure struct {
	Error string `json:"error"`
}

func (m *Failure) Check() error { return text("error", m.Error, MaxText) }

// Pong answers Ping.
type Pong struct {
	Version string `json:"version"`
	Clock   int64  `json:"clock"` // ns since 1970
}

func (m *Pong) Check() error { return text("version", m.Version, MaxName) }

// GuestInfo answers Info.
type GuestInfo struct {
	Version   string     `json:"version"`
	Hostname  string     `json:"hostname"`
	Kernel    string     `json:"kernel"`
	Arch      string     `json:"arch"`
	CPUs      int        `json:"cpus"`
	Uptime    int64      `json:"uptime"` // seconds
	Load      [3]float64 `json:"load"`   // over 1, 5, 15 minutes
	Memory    uint64     `json:"memory"` // KiB
	Available uint64     `json:"available"`
	Links     []Link     `json:"links"`
	Exposed   []Exposed  `json:"exposed"`
}

// Link is one network interface of the guest.
type Link struct {
	Name      string   `json:"name"`
	MAC       string   `json:"mac"`
	MTU       int      `json:"mtu"`
	Up        bool     `json:"up"`
	Addresses []string `json:"addresses"` // with prefix length
}

func (m *GuestInfo) Check() error {
	for name, s := range map[string]string{"version": m.Version, "hostname": m.Hostname, "kernel": m.Kernel, "arch": m.Arch} {
		if err := text(name, s, MaxName); err != nil {
			return err
		}
	}
	if len(m.Links) > MaxLinks || len(m.Exposed) > MaxExposed {
		return fmt.Errorf("%d links and %d exposed services are too many", len(m.Links), len(m.Exposed))
	}
	for _, l := range m.Links {
		if len(l.Addresses) > MaxPerLink {
			return fmt.Errorf("%d addresses are too many", len(l.Addresses))
		}
		for _, s := range append([]string{l.Name, l.MAC}, l.Addresses...) {
			if err := text("links", s, MaxName); err != nil {
				return err
			}
		}
	}
	for i := range m.Exposed {
		if err := m.Exposed[i].Check(); err != nil {
			return err
		}
	}
	return nil
}

// ExposeRequest asks for a service of the guest at a vsock port of it.
type ExposeRequest struct {
	Target string `json:"target,omitempty"` // tcp:ADDRESS:PORT or unix:PATH
	Port   uint32 `json:"port,omitempty"`   // 0: the kernel's choice
	Stop   bool   `json:"stop,omitempty"`   // end what is at Port
}

func (m *ExposeRequest) Check() error {
	switch {
	case m.Port == anyPort:
		return fmt.Errorf("port %d means any: write 0", m.Port)
	case m.Stop && (m.Port == 0 || m.Target != ""):
		return fmt.Errorf("to stop takes a port and no target")
	case !m.Stop && !strings.HasPrefix(m.Target, "tcp:") && !strings.HasPrefix(m.Target, "unix:"):
		return fmt.Errorf("target %.80q: write tcp:ADDRESS:PORT or unix:PATH", m.Target)
	}
	return text("target", m.Target, MaxTarget)
}

// Exposed is a service that is exposed, or was until now.
type Exposed struct {
	Port        uint32 `json:"port"`
	Target      string `json:"target"`
	Connections int    `json:"connections"` // open now
}

func (m *Exposed) Check() error { return text("target", m.Target, MaxTarget) }

// Ways to set a clock.
const (
	Auto = "auto" // slew what is below 0.5 s, step what is more
	Step = "step"
	Slew = "slew"
	Kept = "nothing"
)

// TimeRequest asks the guest to set its clock.
type TimeRequest struct {
	Now int64  `json:"now"`           // ns since 1970
	How string `json:"how,omitempty"` // "": Auto
}

func (m *TimeRequest) Check() error {
	switch {
	case m.Now <= 0:
		return fmt.Errorf("now %d is no time of ours", m.Now)
	case m.How != "" && m.How != Auto && m.How != Step && m.How != Slew:
		return fmt.Errorf("how %.20q: write auto, step or slew", m.How)
	}
	return nil
}

// TimeSet answers Time.
type TimeSet struct {
	Offset int64  `json:"offset"` // ns that the guest's clock was behind
	Did    string `json:"did"`    // Step, Slew or Kept
}

func (m *TimeSet) Check() error {
	if m.Did != Step && m.Did != Slew && m.Did != Kept {
		return fmt.Errorf("did %.20q is not one of step, slew, nothing", m.Did)
	}
	return nil
}

// SetupRequest asks the guest to take a configuration, or to take back what it
// has changed for earlier ones.
type SetupRequest struct {
	Config *Network `json:"config,omitempty"`
	Undo   bool     `json:"undo,omitempty"`
}

func (m *SetupRequest) Check() error {
	if (m.Config == nil) != m.Undo {
		return fmt.Errorf("send either config or undo")
	}
	if m.Config == nil {
		return nil
	}
	return m.Config.Check()
}

// Changed answers Setup: one line for each thing that is different now.
type Changed struct {
	Changes []string `json:"changes"`
}

func (m *Changed) Check() error {
	if len(m.Changes) > MaxChanges {
		return fmt.Errorf("%d changes are too many", len(m.Changes))
	}
	for _, s := range m.Changes {
		if err := text("changes", s, MaxText); err != nil {
			return err
		}
	}
	return nil
}

// text checks what may be shown on a terminal: one line, nothing that controls it.
func text(name, s string, most int) error {
	switch {
	case len(s) > most:
		return fmt.Errorf("%s has %d bytes, at most %d fit", name, len(s), most)
	case s != printable(s):
		return fmt.Errorf("%s has characters that cannot be printed", name)
	}
	return nil
}

// printable replaces what cannot be printed.
func printable(s string) string {
	return strings.Map(func(r rune) rune {
		if r != utf8.RuneError && unicode.IsPrint(r) {
			return r
		}
		return '?'
	}, s)
}

// Text makes a line that Check lets pass of anything, an error of the system for
// one.
func Text(s string) string {
	s = printable(s)
	return strings.ToValidUTF8(s[:min(len(s), MaxText)], "")
}
