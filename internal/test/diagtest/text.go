package diagtest

import (
	"bytes"
	"log/slog"
	"slices"
	"strings"
	"sync"
)

// Text is what has been written to it, for a log that a test reads meanwhile.
type Text struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

// Write appends p.
func (x *Text) Write(p []byte) (int, error) {
	x.mu.Lock()
	defer x.mu.Unlock()
	return x.buf.Write(p)
}

// Logger writes to x.
func (x *Text) Logger() *slog.Logger { return slog.New(slog.NewTextHandler(x, nil)) }

// Lines are those that contain the text, without empty ones.
func (x *Text) Lines(text string) []string {
	x.mu.Lock()
	defer x.mu.Unlock()
	return slices.DeleteFunc(strings.Split(x.buf.String(), "\n"), func(l string) bool {
		return l == "" || !strings.Contains(l, text)
	})
}
