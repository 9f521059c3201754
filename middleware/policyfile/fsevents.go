package policyfile

import (
	"path/filepath"

	"github.com/fsnotify/fsnotify"
)

// notices are the system's notices of changes around a file. Without a system
// that gives any, which may have run out of what they need, there are none.
type fsEvents struct {
	watcher *fsnotify.Watcher // nil without
	dir     string
	events  <-chan fsnotify.Event
	errors  <-chan error
}

// listen asks for notices of the folder, not of the file: a file that is
// replaced is another one.
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

// renew asks again, in case the folder is another one now. One that is away is
// asked for next time.
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
