// Package logx makes the one logger of a process: readable lines on stderr.
//
// Who calls it: subcommands at start. The data rooms never log; they are handed
// plain functions, and what a guest can trigger goes through Limited.
package logx

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"time"
)

// New returns a logger that writes `guestwire: message key=value` lines from
// level (debug, info, warn, error) on.
func New(w io.Writer, level string) (*slog.Logger, error) {
	var l slog.Level
	if err := l.UnmarshalText([]byte(level)); err != nil {
		return nil, fmt.Errorf("--log-level %q: use debug, info, warn or error", level)
	}
	return slog.New(&handler{w: w, level: l}), nil
}

// handler is a slog.Handler without time stamps: journald and terminals add
// their own.
type handler struct {
	mu    sync.Mutex
	w     io.Writer
	level slog.Level
	attrs string
}

func (h *handler) Enabled(_ context.Context, l slog.Level) bool { return l >= h.level }

func (h *handler) Handle(_ context.Context, r slog.Record) error {
	var b strings.Builder
	b.WriteString("guestwire: ")
	if r.Level != slog.LevelInfo {
		b.WriteString(strings.ToLower(r.Level.String()) + ": ")
	}
	b.WriteString(r.Message)
	b.WriteString(h.attrs)
	r.Attrs(func(a slog.Attr) bool {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
		return true
	})
	b.WriteByte('\n')
	h.mu.Lock()
	defer h.mu.Unlock()
	_, err := io.WriteString(h.w, b.String())
	return err
}

func (h *handler) WithAttrs(as []slog.Attr) slog.Handler {
	var b strings.Builder
	for _, a := range as {
		fmt.Fprintf(&b, " %s=%v", a.Key, a.Value)
	}
	return &handler{w: h.w, level: h.level, attrs: h.attrs + b.String()}
}

func (h *handler) WithGroup(string) slog.Handler { return h }

// Limited wraps a log function so that a guest cannot flood the log: at most
// burst lines per period, then one line that says how many were left out.
// now is the caller's clock. Not safe for use from several goroutines.
func Limited(log func(string), burst int, period time.Duration, now func() time.Time) func(string) {
	var start time.Time
	var n, suppressed int
	return func(msg string) {
		t := now()
		if t.Sub(start) >= period {
			if suppressed > 0 {
				log(fmt.Sprintf("%d more messages in the last %v were left out", suppressed, period))
			}
			start, n, suppressed = t, 0, 0
		}
		if n++; n > burst {
			suppressed++
			return
		}
		log(msg)
	}
}
