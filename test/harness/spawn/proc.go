package spawn

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"
)

// clockTick is USER_HZ: the unit of the times in /proc/PID/stat, 100 per second on every Linux that Go runs on.
const clockTick = 10 * time.Millisecond

// CPU is the processor time, user and system, that the child has used so far.
func (p *Process) CPU() (time.Duration, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.PID()))
	if err != nil {
		return 0, err
	}
	// proc_pid_stat(5): the command in parentheses may contain spaces; utime and stime are fields 14 and 15.
	s := string(b)
	f := strings.Fields(s[strings.LastIndexByte(s, ')')+1:])
	if len(f) < 13 {
		return 0, fmt.Errorf("short /proc/%d/stat", p.PID())
	}
	u, err1 := strconv.ParseInt(f[11], 10, 64)
	k, err2 := strconv.ParseInt(f[12], 10, 64)
	if err1 != nil || err2 != nil {
		return 0, fmt.Errorf("unreadable /proc/%d/stat", p.PID())
	}
	return time.Duration(u+k) * clockTick, nil
}

// Status reads one field of /proc/PID/status in KiB (RssAnon, VmRSS) or as a number (Threads, FDSize).
func (p *Process) Status(field string) (int, error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.PID()))
	if err != nil {
		return 0, err
	}
	for _, line := range strings.Split(string(b), "\n") {
		if name, v, ok := strings.Cut(line, ":"); ok && name == field {
			return strconv.Atoi(strings.TrimSpace(strings.TrimSuffix(v, "kB")))
		}
	}
	return 0, fmt.Errorf("/proc/%d/status has no %s", p.PID(), field)
}

// FDs is the number of descriptors the child has open.
func (p *Process) FDs() (int, error) {
	e, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.PID()))
	return len(e), err
}
