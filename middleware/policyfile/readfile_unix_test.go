//go:build linux || darwin

package policyfile_test

import (
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

// within fails the test if f does not return. If a call waits for a named pipe, within
// opens the pipe for writing, so that the call ends with the test.
func within(t *testing.T, pipe string, f func()) {
	t.Helper()
	done := make(chan struct{})
	go func() { defer close(done); f() }()
	select {
	case <-done:
	case <-time.After(patience):
		t.Error("it waits for the pipe")
		writer, err := os.OpenFile(pipe, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		<-done
		_ = writer.Close()
	}
}

// Files that are not regular are rejected at once, also behind a link.
func TestLoadSpecialFiles(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	pipe, link := filepath.Join(dir, "pipe"), filepath.Join(dir, "link")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(pipe, link); err != nil {
		t.Fatal(err)
	}

	for _, path := range []string{pipe, link, dir, os.DevNull} {
		want := "policyfile: " + path + " is a directory, a named pipe or a device; want a regular file or a link to one"
		within(t, pipe, func() {
			if _, err := policyfile.Load(path, funcs); err == nil || err.Error() != want {
				t.Errorf("got %v; want %s", err, want)
			}
		})
	}
}

// Load does not wait for a named pipe that takes the place of the file during the call.
func TestLoadReplacedByNamedPipe(t *testing.T) {
	t.Parallel()
	dir := t.TempDir()
	path, file, pipe := filepath.Join(dir, "policies.yaml"), filepath.Join(dir, "file"), filepath.Join(dir, "pipe")
	write(t, file, limited("1/minute"))
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}

	ended := make(chan struct{})
	go func() {
		defer close(ended)
		for range 3000 {
			_, _ = policyfile.Load(path, funcs) // of the file or of the pipe
		}
	}()

	late := time.After(patience)
	for i := 0; ; i++ {
		select {
		case <-ended:
			return
		case <-late:
			t.Fatal("it waits for the pipe")
		default:
			if err := errors.Join(os.Symlink([]string{file, pipe}[i%2], path+".new"), os.Rename(path+".new", path)); err != nil {
				t.Fatal(err)
			}
		}
	}
}
