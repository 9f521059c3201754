package policyfile

import (
	"cmp"
	"context"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Watch reloads the limiter's policies whenever the file at path changes, until
// the context ends. It logs each reload to [slog.Default]. It is shorthand for
// [Watcher.Run].
func Watch(ctx context.Context, path string, funcs Funcs, l *middleware.Limiter) {
	(&Watcher{Path: path, Funcs: funcs, Limiter: l}).Run(ctx)
}

// Watcher reloads a limiter's policies from a file. A change takes effect for all
// policies at once, and clients keep what they have used up; see
// [middleware.Limiter.Reload]. While the file is missing or has a mistake, the
// policies stay as they were.
//
// Set the fields before the first use. All but OnReload are required.
type Watcher struct {
	Path    string
	Funcs   Funcs
	Limiter *middleware.Limiter

	// OnReload is called with nil after each reload, the first when Run begins, and with
	// the error of [Load] or of the limiter after a failure that lasts, or of a call of
	// Reload. Calls do not overlap; they must not use the Watcher. If OnReload is nil,
	// reloads and mistakes are logged to [slog.Default], one line each.
	OnReload func(error)

	mu   sync.Mutex // orders reloads: an older file never replaces a newer one
	last *contents  // the last contents reported; nil before the first report

	retryDelay, pollInterval time.Duration // set by tests; 0 means the constant
}

const (
	// debounce is the pause after a change before the file is read: programs write
	// files in several steps.
	debounce = 50 * time.Millisecond

	// maxDebounce is the longest wait while changes go on.
	maxDebounce = 400 * time.Millisecond

	// retryDelay is how long an error must last before it is reported.
	retryDelay = 400 * time.Millisecond

	// pollInterval is for file systems without events, and for files behind
	// symbolic links, which have none either.
	pollInterval = 2 * time.Second
)

// Run watches the file until the context ends. A change takes effect within half a
// second where the file's directory has events, and otherwise, as on some network file
// systems or behind a symbolic link, within three seconds. The file may be written in
// place, be replaced, or be behind symbolic links that are swapped, as in a Kubernetes
// ConfigMap (but not one mounted with subPath, which Kubernetes does not update).
// Replacing is best: part of a file, read while it is being written, may be a valid file.
func (w *Watcher) Run(ctx context.Context) {
	// There are no events if the system has none, or no resources left for them. Those of a
	// file end when it is replaced, so its directory is watched.
	var events <-chan fsnotify.Event
	var lost <-chan error
	watch := func() {}
	if fs, err := fsnotify.NewWatcher(); err == nil {
		defer func() { _ = fs.Close() }()
		events, lost = fs.Events, fs.Errors
		watch = func() { _ = fs.Add(filepath.Dir(w.Path)) }
	}
	watch()

	retryDelay := cmp.Or(w.retryDelay, retryDelay)
	poll := time.NewTicker(cmp.Or(w.pollInterval, pollInterval))
	defer poll.Stop()

	next := time.NewTimer(0)
	defer next.Stop()
	var changedAt, failedAt time.Time // the first change and the first error; zero for none

	for {
		select {
		case <-ctx.Done():
			return
		case event := <-events:
			if event.Op == fsnotify.Chmod {
				continue
			}
		case <-lost: // reading the file makes up for the events
		case <-poll.C:
			watch() // again: the directory may be another one
		case <-next.C:
			changedAt = time.Time{}
			if w.reloadIfChanged(!failedAt.IsZero() && time.Since(failedAt) >= retryDelay) {
				failedAt = time.Time{}
				continue
			}

			if failedAt.IsZero() {
				failedAt = time.Now()
			}
			next.Reset(retryDelay)
			continue
		}

		if changedAt.IsZero() {
			changedAt = time.Now()
		}
		next.Reset(min(debounce, maxDebounce-time.Since(changedAt)))
	}
}

// reloadIfChanged reloads the file if its contents are new. If they have an error
// and reportError is false, it returns false: the caller tries again later.
func (w *Watcher) reloadIfChanged(reportError bool) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := read(w.Path)
	if w.last != nil && w.last.equal(now) {
		return true
	}
	err := w.apply(now)
	if err != nil && !reportError {
		return false
	}
	w.report(now, err)
	return true
}

// Reload reads the file at once, changed or not, for example on SIGHUP. It calls
// OnReload too. It may be called at any time, also while Run runs.
func (w *Watcher) Reload() error {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := read(w.Path)
	err := w.apply(now)
	w.report(now, err)
	return err
}

// apply gives the file's policies to the limiter.
func (w *Watcher) apply(c contents) error {
	if c.err != nil {
		return c.err
	}
	policies, err := Parse(w.Path, []byte(c.data), w.Funcs)
	if err != nil {
		return err
	}
	return w.Limiter.Reload(policies...)
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
		slog.Info("ratelimit: policies loaded", "file", w.Path, "policies", len(w.Limiter.Policies()))
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
