package policyfile

import (
	"context"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Watch replaces the limiter's policies by the file's, at once and when the file changes, until the
// context ends. It logs reloads and mistakes to [slog.Default]. See [Watcher.Run].
func Watch(ctx context.Context, path string, funcs Funcs, l *middleware.Limiter) {
	(&Watcher{Path: path, Funcs: funcs, Limiter: l}).Run(ctx)
}

// Watcher reloads a limiter's policies from a file; [middleware.Limiter.Reload] says what
// becomes of what clients have used. While the file is missing or has a mistake, the policies
// stay as they were.
//
// Set the fields before the first use. Path, Funcs and one of Limiter and Limiters are required.
type Watcher struct {
	Path    string
	Funcs   Funcs
	Limiter *middleware.Limiter

	// Limiters, by name, are in place of Limiter for a file of [LoadAll]. A reload is of all, or of
	// none.
	Limiters map[string]*middleware.Limiter

	// OnReload is called with nil after each reload, and with the error of [Load] or of the
	// limiter after a failure that lasts, or of a call of Reload. It must not use the Watcher.
	// If OnReload is nil, reloads and mistakes are logged to [slog.Default].
	OnReload func(error)

	mu   sync.Mutex // orders reloads: an older file never replaces a newer one
	last *contents  // the last contents reported; nil before the first report
}

// interval is the time between two reads of the file. They are cheap, and unlike events they do
// without support of the file system.
const interval = 200 * time.Millisecond

// Run follows the file until the context ends. It reads it about five times a second, and reloads
// new contents that two reads in a row have found. The file may be behind symbolic links that are
// swapped, as in a Kubernetes ConfigMap without subPath. Replace it rather than write in place: a
// part of a file may be a valid file.
func (w *Watcher) Run(ctx context.Context) {
	for found := read(w.Path); ; {
		found = w.reloadIfChanged(found)

		select {
		case <-ctx.Done():
			return
		case <-time.After(interval):
		}
	}
}

// reloadIfChanged reads the file, and reloads it if its contents are new and the read before found
// them too: programs write files in several steps. It returns the contents.
func (w *Watcher) reloadIfChanged(before contents) contents {
	w.mu.Lock()
	defer w.mu.Unlock()

	now := read(w.Path)
	if isNew := w.last == nil || !w.last.equal(now); isNew && now.equal(before) {
		w.report(now, w.apply(now))
	}
	return now
}

// Reload reads the file at once, changed or not, for example on SIGHUP, and calls
// OnReload. Run may be running.
func (w *Watcher) Reload() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := read(w.Path)
	err := w.apply(now)
	w.report(now, err)
	return err
}

// limiters returns the limiters by their names in the file.
func (w *Watcher) limiters() map[string]*middleware.Limiter {
	if w.Limiters != nil {
		return w.Limiters
	}
	return map[string]*middleware.Limiter{"": w.Limiter}
}

// apply gives the file's policies to the limiters, or takes them back if one rejects its own.
func (w *Watcher) apply(c contents) error {
	if c.err != nil {
		return c.err
	}
	limiters := w.limiters()
	all, err := parseAll(w.Path, []byte(c.data), w.Funcs, slices.Sorted(maps.Keys(limiters)))
	if err != nil {
		return err
	}

	before := map[string][]middleware.Policy{}
	for name, l := range limiters {
		before[name] = l.Policies()
		if err := l.Reload(all[name]...); err != nil {
			delete(before, name)
			for name, policies := range before {
				_ = limiters[name].Reload(policies...) // it had them
			}
			return err
		}
	}
	return nil
}

func (w *Watcher) report(c contents, err error) {
	w.last = &c
	switch {
	case w.OnReload != nil:
		w.OnReload(err)
	case err != nil:
		for line := range strings.Lines(err.Error()) {
			slog.Error("ratelimit: policies stay as they were", "file", w.Path, "error", strings.TrimSuffix(line, "\n"))
		}
	default:
		n := 0
		for _, l := range w.limiters() {
			n += len(l.Policies())
		}
		slog.Info("ratelimit: policies loaded", "file", w.Path, "policies", n)
	}
}

// contents are a file's contents, or the error of reading it.
type contents struct {
	data string
	err  error
}

func read(path string) contents {
	data, err := readFile(path)
	return contents{string(data), err}
}

func (c contents) equal(d contents) bool {
	return c.data == d.data && (c.err == nil) == (d.err == nil)
}
