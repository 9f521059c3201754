package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/seed-e377111c/ratelimit/examples/internal/process"
)

func TestMain(m *testing.M) { process.Main(m, main) }

// start runs the example with a copy of its policies.
func start(t *testing.T) (p *process.Process, path, text string) {
	t.Helper()
	path, text = copied(t)
	return process.Start(t, "-policies", path), path, text
}

// copied returns a copy of policies.yaml that a test can change.
func copied(t *testing.T) (path, text string) {
	t.Helper()
	b, err := os.ReadFile("policies.yaml")
	if err != nil {
		t.Fatal(err)
	}
	path = filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, string(b))
	return path, string(b)
}

// write replaces the file, as editors do.
func write(t *testing.T, path, text string) {
	t.Helper()
	if err := os.WriteFile(path+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(path+"~", path); err != nil {
		t.Fatal(err)
	}
}

func TestHelp(t *testing.T) {
	t.Parallel()
	code, out, errs := process.Run(t, "-h")
	if code != 0 || errs != "" || !strings.Contains(out, "-addr host:port") || !strings.Contains(out, "-policies file") {
		t.Errorf("got exit %d, %q and error %q; want 0, the flags and none", code, out, errs)
	}
}

// A mistake on the command line is one line that says what is right.
func TestMistakes(t *testing.T) {
	t.Parallel()
	missing := filepath.Join(t.TempDir(), "policies.yaml")
	for _, mistake := range []struct {
		args []string
		want []string // parts of the line
	}{
		{[]string{"-port", "80"}, []string{"-port", "the flags are -addr and -policies"}},
		{[]string{"serve"}, []string{`"serve"`, "the flags are -addr and -policies"}},
		{[]string{"-policies", missing}, []string{missing, "in the root of the repository"}},
		{[]string{"-policies", "policies.yaml", "-addr", "8080"}, []string{"-addr", "such as 127.0.0.1:8081"}},
	} {
		code, out, errs := process.Run(t, mistake.args...)
		if code != 1 || out != "" || strings.Count(errs, "\n") != 1 || !strings.HasPrefix(errs, "policies: ") {
			t.Errorf("%q: got exit %d, %q and error %q; want exit 1 and one line of error", mistake.args, code, out, errs)
		}
		for _, part := range mistake.want {
			if !strings.Contains(errs, part) {
				t.Errorf("%q: got %q; want %q in it", mistake.args, errs, part)
			}
		}
	}
}

// Every mistake in the file is a line, and the server does not start.
func TestMistakesInFile(t *testing.T) {
	t.Parallel()
	path := filepath.Join(t.TempDir(), "policies.yaml")
	write(t, path, "policies:\n  - key: clients\n    limit: 10\n    name: a\n")
	code, out, errs := process.Run(t, "-policies", path)
	want := "policies: " + path + ":2:10: key is \"clients\"; want client, route or user (did you mean client?)\n" +
		path + ":3:12: limit is 10; want a limit such as 100/minute\n"
	if code != 1 || out != "" || errs != want {
		t.Errorf("got exit %d, %q and\n%s; want exit 1, nothing and\n%s", code, out, errs, want)
	}
}
