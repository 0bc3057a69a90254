package agent

import (
	"encoding/json"
	"errors"
	"io"
	"os"
	"os/exec"
	"strings"
	"syscall"
	"time"
)

// Serve answers requests from the line until it breaks; it is the guest's end.
func Serve(line io.ReadWriter) error {
	out := lineWriter{w: line}
	boot, _ := os.ReadFile("/proc/sys/kernel/random/boot_id")
	if err := out.put(answer{Output: []byte(strings.TrimSpace(string(boot)))}); err != nil {
		return err
	}
	return lines(line, func(b []byte) {
		var r request
		if json.Unmarshal(b, &r) != nil || r.ID == 0 {
			return
		}
		go func() { _ = out.put(execute(r)) }()
	})
}

func execute(r request) answer {
	cmd := exec.Command("/bin/sh", "-c", r.Command)
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	f, err := os.CreateTemp("", "out")
	if err != nil {
		return answer{ID: r.ID, Exit: 127, Output: []byte(err.Error())}
	}
	defer os.Remove(f.Name())
	defer f.Close()
	// A file, not a pipe: a command that leaves a background child behind must not hold up the answer.
	cmd.Stdout, cmd.Stderr = f, f
	if err := cmd.Start(); err != nil {
		return answer{ID: r.ID, Exit: 127, Output: []byte(err.Error())}
	}
	killed := false
	done := make(chan struct{})
	go func() { err = cmd.Wait(); close(done) }()
	select {
	case <-done:
	case <-time.After(time.Duration(r.Seconds) * time.Second):
		killed = true
		_ = syscall.Kill(-cmd.Process.Pid, syscall.SIGKILL)
		<-done
	}
	output, _ := os.ReadFile(f.Name())
	return answer{ID: r.ID, Output: output, Exit: exitCode(err, killed)}
}

func exitCode(err error, killed bool) int {
	var e *exec.ExitError
	switch {
	case killed:
		return 124
	case err == nil:
		return 0
	case errors.As(err, &e):
		if ws, ok := e.Sys().(syscall.WaitStatus); ok && ws.Signaled() {
			return 128 + int(ws.Signal())
		}
		return e.ExitCode()
	default:
		return 127
	}
}
