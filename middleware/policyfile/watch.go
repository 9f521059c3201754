package policyfile

import (
	"cmp"
	"context"
	"log/slog"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Watch keeps the policies of the limiter those of the file at path until the
// context ends, and tells [slog.Default] of each change. It is shorthand for
// [Watcher.Run].
func Watch(ctx context.Context, path string, v Funcs, l *middleware.Limiter) {
	(&Watcher{Path: path, Funcs: v, Limiter: l}).Run(ctx)
}

// Watcher keeps the policies of a limiter those of a file. A change takes effect
// for all policies at once, and what clients have used up stays; see
// [middleware.Limiter.Reload]. With a mistake in the file, and while it is away,
// the policies stay as they were.
//
// The fields are set before the first use. All but OnReload are required.
type Watcher struct {
	Path    string
	Funcs   Funcs
	Limiter *middleware.Limiter

	// OnReload gets nil when the policies of the file have taken effect, first
	// when Run begins, and otherwise why they have not, which is the error of
	// [Load]. Calls come one at a time; in them the Watcher must be left alone.
	// Nil means lines to [slog.Default]: one, or one for each mistake.
	OnReload func(error)

	mu   sync.Mutex // so that no older file follows a newer one
	last *contents  // what OnReload has reported; nil before the first report

	retryDelay, pollInterval time.Duration // for tests, in place of the constants
}

const (
	// settle is how long a file is left alone after a change: whoever writes it in
	// several steps is not done after the first.
	debounce = 50 * time.Millisecond

	// longest is when it is read although changes have not ended.
	maxDebounce = 400 * time.Millisecond

	// doubt is how long a mistake must last, or the file be away, to count.
	retryDelay = 400 * time.Millisecond

	// pollEvery is how often the file is read unasked: not every file system
	// tells of changes, nor any of those behind a symbolic link.
	pollInterval = 2 * time.Second
)

// Run follows the file until the context ends. A change takes effect within
// half a second where the system tells of it, else within three: a network file
// system may not. The file may be written in place, be replaced, or be
// reached through symbolic links that are swapped, as Kubernetes does it with a
// ConfigMap (but for mounts with subPath, which Kubernetes never updates).
// Replacing is best: half of a file, read while it is being written, may be a
// file without a mistake.
func (w *Watcher) Run(ctx context.Context) {
	n := watchDir(w.Path)
	defer n.close()
	doubt, pollEvery := cmp.Or(w.retryDelay, retryDelay), cmp.Or(w.pollInterval, pollInterval)
	poll := time.NewTicker(pollEvery)
	defer poll.Stop()
	next := time.NewTimer(0)
	defer next.Stop()
	var changed, doubted time.Time // when the changes began, and the doubt
	for {
		select {
		case <-ctx.Done():
			return
		case event := <-n.events:
			if event.Op == fsnotify.Chmod {
				continue
			}
		case err := <-n.errors:
			_ = err // some events are lost, but a look is a look at everything
		case <-poll.C:
			n.rewatch()
		case <-next.C:
			changed = time.Time{}
			if w.reloadIfChanged(!doubted.IsZero() && time.Since(doubted) >= doubt) {
				doubted = time.Time{}
				continue
			}
			if doubted.IsZero() {
				doubted = time.Now()
			}
			next.Reset(doubt)
			continue
		}
		if changed.IsZero() {
			changed = time.Now()
		}
		next.Reset(min(debounce, maxDebounce-time.Since(changed)))
	}
}

// look takes over the file if it has changed. A mistake is told only to the
// sure; others are to come back, as it may be gone then.
func (w *Watcher) reloadIfChanged(sure bool) (done bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	now := read(w.Path)
	if w.last != nil && w.last.equal(now) {
		return true
	}
	err := w.apply(now)
	if err != nil && !sure {
		return false
	}
	w.report(now, err)
	return true
}

// Reload reads the file at once, changed or not: on SIGHUP, for example. OnReload
// is called too. It may be called at any time, with Run or without.
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
		for _, mistake := range each(err) {
			slog.Error("ratelimit: policies stay as they were", "file", w.Path, "error", mistake)
		}
	default:
		slog.Info("ratelimit: policies loaded", "file", w.Path, "policies", len(w.Limiter.Policies()))
	}
}

// each is the errors that are joined in err.
func each(err error) []error {
	if joined, ok := err.(interface{ Unwrap() []error }); ok {
		return joined.Unwrap()
	}
	return []error{err}
}

// contents are what a file holds, or why that is not known.
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
