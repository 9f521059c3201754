// Package diag logs problems of a user's configuration: a server that refuses the password, a key
// function that always fails, a limiter that runs twice.
//
// A problem has a [Code] (codes.go) and a cause, such as the name of a policy. The first occurrence
// of a code and cause is logged, then at most one line every five minutes with the number of
// occurrences since the last. Every line links to the section of docs/troubleshooting.md about the
// code.
package diag

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"
)

// Interval is the least time between two lines about one code and cause.
const Interval = 5 * time.Minute

// maxCauses bounds the memory of a [Log]. Further causes of a code share one
// entry.
const maxCauses = 256

// page has a section for each code.
const page = "https://github.com/seed-e377111c/ratelimit/blob/main/docs/troubleshooting.md#"

// Log logs problems. It is safe for concurrent use. The zero value logs to [slog.Default].
type Log struct {
	// Logger gets the lines; nil means slog.Default() at the time of the line.
	// Set it before first use.
	Logger *slog.Logger

	mu   sync.Mutex
	seen map[problem]*occurrences
}

type problem struct {
	code  Code
	cause string
}

type occurrences struct {
	logged time.Time
	since  int // occurrences that were not logged since then
}

// Report logs a line about the code, unless one about the same code and cause was logged within
// [Interval]. A client must not be able to choose the cause; such text belongs in args, which are
// attributes as in [slog.Log].
func (l *Log) Report(code Code, cause, message string, args ...any) {
	if write := l.Line(code, cause, message, args...); write != nil {
		write()
	}
}

// Line is Report for callers that must not wait for the log: it returns a function that writes the
// line, or nil if no line is due.
func (l *Log) Line(code Code, cause, message string, args ...any) (write func()) {
	repeated, due := l.due(problem{code, cause}, time.Now())
	if !due {
		return nil
	}
	logger := cmp.Or(l.Logger, slog.Default())
	args = append([]any{"code", string(code)}, args...)
	if repeated > 0 {
		args = append(args, "repeated", repeated)
	}
	args = append(args, "help", page+string(code))
	return func() { logger.Log(context.Background(), code.Level(), "ratelimit: "+message, args...) }
}

// Forget ends a problem: its next occurrence is logged at once.
func (l *Log) Forget(code Code, cause string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.seen, problem{code, cause})
}

// due reports whether a line is due now, and how many occurrences were not logged since the last.
func (l *Log) due(p problem, now time.Time) (repeated int, due bool) {
	l.mu.Lock()
	defer l.mu.Unlock()

	o := l.seen[p]
	// Causes may come from clients: beyond the bound, all of a code are one.
	if o == nil && len(l.seen) >= maxCauses {
		p.cause = ""
		o = l.seen[p]
	}

	if o == nil {
		if l.seen == nil {
			l.seen = map[problem]*occurrences{}
		}
		l.seen[p] = &occurrences{logged: now}
		return 0, true
	}

	if now.Sub(o.logged) < Interval {
		o.since++
		return 0, false
	}

	// The line that comes now stands for those that were held back.
	repeated, o.since, o.logged = o.since, 0, now
	return repeated, true
}
