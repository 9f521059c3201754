// Package diagtest checks in tests what package diag logs. [Log] collects the lines of one logger;
// [Quiet] fails the tests of a package that log to [slog.Default].
package diagtest

import (
	"context"
	"fmt"
	"log"
	"log/slog"
	"os"
	"slices"
	"strings"
	"sync"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Line is one logged problem.
type Line struct {
	Level slog.Level
	Text  string
	Attrs map[string]string // "code", "policy", "help", ...
}

// Code returns the line's code.
func (l Line) Code() diag.Code { return diag.Code(l.Attrs["code"]) }

func (l Line) String() string { return fmt.Sprint(l.Level, " ", l.Text, " ", l.Attrs) }

// Log is a slog.Handler that keeps the lines that have a code of package diag.
type Log struct {
	mu    sync.Mutex
	lines []Line
}

// Logger returns a logger whose lines go to l.
func (l *Log) Logger() *slog.Logger { return slog.New(l) }

// Lines returns the lines so far.
func (l *Log) Lines() []Line {
	l.mu.Lock()
	defer l.mu.Unlock()
	return slices.Clone(l.lines)
}

func (l *Log) Enabled(context.Context, slog.Level) bool { return true }
func (l *Log) WithAttrs([]slog.Attr) slog.Handler       { return l }
func (l *Log) WithGroup(string) slog.Handler            { return l }

// Handle keeps the record if it has a code.
func (l *Log) Handle(_ context.Context, r slog.Record) error {
	line := Line{Level: r.Level, Text: r.Message, Attrs: map[string]string{}}
	r.Attrs(func(a slog.Attr) bool {
		line.Attrs[a.Key] = a.Value.Resolve().String()
		return true
	})
	if line.Code() != "" {
		l.mu.Lock()
		defer l.mu.Unlock()
		l.lines = append(l.lines, line)
	}
	return nil
}

// Quiet returns m with a check: the tests fail if they log a problem to [slog.Default]. A test of a
// wrong configuration sets a Logger of its own. The codes in except, for packages that test
// failures, do not count; neither does a Redis that is unreachable or answers too late, since the machine
// may be a busy one, nor a hint at level INFO, which is about a set-up that works.
//
//	func TestMain(m *testing.M) { os.Exit(diagtest.Quiet(m).Run()) }
func Quiet(m interface{ Run() int }, except ...diag.Code) interface{ Run() int } {
	return quiet{m, append(except, diag.RedisUnreachable)}
}

type quiet struct {
	tests  interface{ Run() int }
	except []diag.Code
}

func (q quiet) Run() int {
	def := slog.Default()
	seen := new(Log)
	slog.SetDefault(slog.New(both{slog.NewTextHandler(os.Stderr, nil), seen}))
	log.SetOutput(os.Stderr) // SetDefault has redirected it
	log.SetFlags(log.LstdFlags)
	defer slog.SetDefault(def)
	code := q.tests.Run()
	for _, line := range seen.Lines() {
		late := strings.HasSuffix(line.Attrs["error"], context.DeadlineExceeded.Error()) || strings.HasSuffix(line.Attrs["error"], os.ErrDeadlineExceeded.Error())
		if line.Level >= slog.LevelWarn && !late && !slices.Contains(q.except, line.Code()) {
			fmt.Fprintln(os.Stderr, "FAIL: a problem was logged to slog.Default:", line)
			code = max(code, 1)
		}
	}
	return code
}

// both passes each record to two handlers.
type both struct {
	slog.Handler
	log *Log
}

func (b both) Handle(ctx context.Context, r slog.Record) error {
	_ = b.log.Handle(ctx, r)
	return b.Handler.Handle(ctx, r)
}
