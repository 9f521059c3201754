package policyfile

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// fsEvents are the operating system's events for a directory. There are none if
// the system has no such events, or no resources left for them.
type fsEvents struct {
	watcher *fsnotify.Watcher // may be nil
	dir     string
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// watchDir watches the directory of the file, not the file: events of a file end
// when it is replaced.
func watchDir(path string) *fsEvents {
	n := &fsEvents{dir: filepath.Dir(path)}
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return n
	}
	n.watcher, n.events, n.errors = watcher, watcher.Events, watcher.Errors
	n.rewatch()
	return n
}

// rewatch watches the directory again, in case it was replaced. If it is missing,
// the next call tries again.
func (n *fsEvents) rewatch() {
	if n.watcher != nil {
		_ = n.watcher.Add(n.dir)
	}
}

func (n *fsEvents) close() {
	if n.watcher != nil {
		_ = n.watcher.Close()
	}
}
