package policyfile_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/policyfile"
)

const patience = 30 * time.Second // for busy machines

func TestMain(m *testing.M) { goleak.VerifyTestMain(diagtest.Quiet(m)) }

// limited returns a file with one policy.
func limited(limit string) string {
	return "policies:\n- name: a\n  key: user\n  limit: " + limit + "\n"
}

// watched is a limiter whose file is watched.
type watched struct {
	*policyfile.Watcher
	t       *testing.T
	reports chan error
}

// watcher returns a watched that does not run yet.
func watcher(t *testing.T, path string) *watched {
	t.Helper()
	policies, err := policyfile.Parse(path, []byte(limited("1/second")), funcs)
	if err != nil {
		t.Fatal(err)
	}
	w := &watched{t: t, reports: make(chan error, 100)}
	w.Watcher = &policyfile.Watcher{
		Path: path, Funcs: funcs,
		Limiter:  middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()}, policies...)),
		OnReload: func(err error) { w.reports <- err },
	}
	return w
}

// run starts Run, which ends with the test.
func (w *watched) run() {
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { w.Run(ctx) })
	w.t.Cleanup(func() { cancel(); running.Wait() })
}

// report waits for the next report.
func (w *watched) report() error {
	w.t.Helper()
	select {
	case err := <-w.reports:
		return err
	case <-time.After(patience):
		w.t.Fatal("no report")
		return nil
	}
}

// takes waits for the next report, which must be nil, with this limit in force.
func (w *watched) takes(limit string) {
	w.t.Helper()
	if err := w.report(); err != nil {
		w.t.Fatalf("got %v; want policies with %s", err, limit)
	}
	if got := w.Limiter.Policies(); len(got) != 1 || got[0].Limit.String() != limit {
		w.t.Fatalf("got %+v; want one policy with %s", got, limit)
	}
}

func replace(t *testing.T, path, text string) {
	t.Helper()
	write(t, path+".new", text)
	if err := os.Rename(path+".new", path); err != nil {
		t.Fatal(err)
	}
}

// Each way to change a file is noticed, none is reported as a mistake, and a file that
// did not change is not reported.
func TestWatch(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		dir := t.TempDir()
		path := filepath.Join(dir, "policies.yaml")
		write(t, path, limited("1/minute"))
		w := watcher(t, path)
		w.run()
		w.takes("1/minute")

		write(t, path, limited("2/minute"))
		w.takes("2/minute")

		replace(t, path, limited("3/minute"))
		w.takes("3/minute")

		// Vim moves the old file away and writes a new one.
		if err := os.Rename(path, path+"~"); err != nil {
			t.Fatal(err)
		}
		write(t, path, limited("4/minute"))
		w.takes("4/minute")

		// No change of the contents.
		write(t, path, limited("4/minute"))
		replace(t, path, limited("4/minute"))
		write(t, filepath.Join(dir, "other.yaml"), "x")
		now := time.Now()
		if err := errors.Join(os.Chtimes(path, now, now), os.Chmod(path, 0o644)); err != nil {
			t.Fatal(err)
		}
		time.Sleep(time.Second)

		write(t, path, limited("5/minute"))
		w.takes("5/minute")

		// Written in parts; the first ones are not valid.
		text := limited("6/minute")
		f, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		defer f.Close()

		for i := range len(text) {
			if _, err := f.WriteString(text[i : i+1]); err != nil {
				t.Fatal(err)
			}
			if i%10 == 0 {
				time.Sleep(150 * time.Millisecond) // a slow writer
			}
		}
		w.takes("6/minute")
	})
}

// A ConfigMap is updated in a new directory, which a link is then switched to. The file
// is a link through that link (kubelet's atomic_writer.go).
func TestWatchConfigMap(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		volume := t.TempDir()
		publish := func(n int, text string) {
			t.Helper()
			version := fmt.Sprintf("..2026_01_01_00_00_%02d.123456789", n)
			data, next := filepath.Join(volume, "..data"), filepath.Join(volume, "..data_tmp")
			old, _ := os.Readlink(data) // none at first
			if err := os.Mkdir(filepath.Join(volume, version), 0o755); err != nil {
				t.Fatal(err)
			}

			write(t, filepath.Join(volume, version, "policies.yaml"), text)
			if err := errors.Join(os.Symlink(version, next), os.Rename(next, data)); err != nil {
				t.Fatal(err)
			}

			if old == "" {
				if err := os.Symlink(filepath.Join("..data", "policies.yaml"), filepath.Join(volume, "policies.yaml")); err != nil {
					t.Fatal(err)
				}
			} else if err := os.RemoveAll(filepath.Join(volume, old)); err != nil {
				t.Fatal(err)
			}
		}

		publish(0, limited("10/minute"))
		w := watcher(t, filepath.Join(volume, "policies.yaml"))
		w.run()
		for n := range 5 {
			w.takes(fmt.Sprintf("%d/minute", n+10))
			publish(n+1, limited(fmt.Sprintf("%d/minute", n+11)))
		}
		w.takes("15/minute")
	})
}

// A broken file changes nothing and is reported once, as is a file that stays missing.
// The next valid file is loaded.
func TestWatchMistakes(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "policies.yaml")
		write(t, path, limited("1/minute"))
		w := watcher(t, path)
		w.run()
		w.takes("1/minute")

		for range 2 { // the second time it is no news
			replace(t, path, "policies:\n- name: a\n  key: usr\n  limit: 5/minit\n")
		}

		want := []string{
			path + `:3:8: key is "usr"; want client or user`,
			path + `:4:10: limit is "5/minit": period is "minit"; want second, minute, hour, day or a duration such as 5s`,
		}
		if got := joinedErrors(w.report()); !slices.Equal(got, want) {
			t.Errorf("got %q; want %q", got, want)
		}

		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
		if err := w.report(); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
			t.Errorf("got %v; want that the file is not there", err)
		}

		if got := w.Limiter.Policies(); len(got) != 1 || got[0].Limit != gcra.PerMinute(1) {
			t.Errorf("got %+v; want the policies as they were", got)
		}
		write(t, path, limited("1/minute")) // what it was before: good news all the same
		w.takes("1/minute")
	})
}

// A mistake that disappears at once was a file being written, and is not reported.
func TestWatchBriefMistake(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "policies.yaml")
		write(t, path, limited("1/minute"))
		w := watcher(t, path)
		w.run()
		w.takes("1/minute")
		for n, breaks := range []func() error{
			func() error { return os.Remove(path) },
			func() error { return os.Truncate(path, 0) },
			func() error { return os.Truncate(path, 20) },
		} {
			if err := breaks(); err != nil {
				t.Fatal(err)
			}
			time.Sleep(300 * time.Millisecond) // time enough to be seen once
			limit := fmt.Sprintf("%d/minute", n+2)
			write(t, path, limited(limit))
			w.takes(limit)
		}
	})
}

// Reload reads at once, changed or not, with Run or without.
func TestReload(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	w := watcher(t, path)
	if err := w.Reload(); !errors.Is(err, fs.ErrNotExist) || !errors.Is(w.report(), fs.ErrNotExist) {
		t.Errorf("got %v; want that the file is not there", err)
	}

	write(t, path, limited("1/minute"))
	for range 2 {
		if err := w.Reload(); err != nil {
			t.Error(err)
		}
		w.takes("1/minute")
	}

	write(t, path, limited("1"))
	if err := w.Reload(); err == nil || w.report() == nil || !strings.Contains(err.Error(), path+":4:10: limit is 1;") {
		t.Errorf("got %v; want the mistake in line 4", err)
	}
	if got := w.Limiter.Policies()[0].Limit; got != gcra.PerMinute(1) {
		t.Errorf("after a mistake: got %v; want the policies as they were", got)
	}
}

// picky is a store that keeps few limits.
type picky struct{ gcra.Store }

func (picky) CheckLimit(l gcra.Limit) error {
	if l.Count > 5 {
		return errors.New("too many")
	}
	return nil
}

// A reload is of all limiters or, if one rejects its policies or the file has a mistake, of none.
func TestReloadLimiters(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	put := func(a, b string) {
		write(t, path, "limiters:\n  api: [{name: a, key: user, limit: "+a+"}]\n  signin: [{name: b, key: user, limit: "+b+"}]\n")
	}
	put("1/minute", "1/minute")
	all, err := policyfile.LoadAll(path, funcs, "api", "signin")
	if err != nil {
		t.Fatal(err)
	}
	limiters := map[string]*middleware.Limiter{}
	for name, policies := range all {
		limiters[name] = middleware.Must(middleware.New(middleware.Config{Store: picky{gcra.NewMemory()}}, policies...))
	}

	w := &policyfile.Watcher{Path: path, Funcs: funcs, Limiters: limiters, OnReload: func(error) {}}
	for _, tt := range []struct{ a, b, want string }{
		{"2/minute", "3/minute", "2/minute 3/minute"},
		{"4/minute", "9/minute", "2/minute 3/minute"},
		{"9/minute", "4/minute", "2/minute 3/minute"},
		{"4/minute", "4/minut", "2/minute 3/minute"},
		{"4/minute", "5/minute", "4/minute 5/minute"},
	} {
		put(tt.a, tt.b)
		err := w.Reload()
		got := limiters["api"].Policies()[0].Limit.String() + " " + limiters["signin"].Policies()[0].Limit.String()
		if got != tt.want || (err == nil) != (tt.want == tt.a+" "+tt.b) {
			t.Errorf("%s and %s: got %s, %v; want %s", tt.a, tt.b, got, err, tt.want)
		}
	}
}

// Concurrent reloads do not undo each other.
func TestReloadWhileWatching(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "policies.yaml")
		write(t, path, limited("1/minute"))
		w := watcher(t, path)
		w.OnReload = func(error) {}
		w.run()

		var all sync.WaitGroup
		for range 4 {
			all.Go(func() {
				for range 20 {
					if err := w.Reload(); err != nil {
						t.Error(err)
					}
					time.Sleep(200 * time.Millisecond) // until Run reads the file, too
				}
			})
		}

		for n := range 20 {
			replace(t, path, limited(fmt.Sprintf("%d/minute", n+2)))
			time.Sleep(200 * time.Millisecond)
		}

		all.Wait()
		if err := w.Reload(); err != nil {
			t.Error(err)
		}
		if got := w.Limiter.Policies()[0].Limit; got != gcra.PerMinute(21) {
			t.Errorf("got %v; want the last, 21/minute", got)
		}
	})
}

// Without OnReload each reload is logged in one line, and each mistake in one.
func TestWatchLogs(t *testing.T) {
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, limited("1/minute"))
	var log bytes.Buffer
	before := slog.Default()
	slog.SetDefault(slog.New(slog.NewTextHandler(&log, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}})))
	defer slog.SetDefault(before)

	w := watcher(t, path)
	w.OnReload = nil
	_ = w.Reload()
	write(t, path, limited("1")+"  shadow: 1\n")
	_ = w.Reload()
	stay := "level=ERROR msg=\"ratelimit: policies stay as they were\" file=" + path + " error=\"" + path
	want := "level=INFO msg=\"ratelimit: policies loaded\" file=" + path + " policies=1\n" +
		stay + ":4:10: limit is 1; want a limit such as 100/minute\"\n" +
		stay + ":5:11: shadow is 1; want true or false without quotes\"\n"
	if got := log.String(); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}
