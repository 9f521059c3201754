package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A wrong usage exits with 2 and says what would be right. Help is no error.
func TestUsage(t *testing.T) {
	for _, tt := range []struct {
		args           []string
		code           int
		stdout, stderr string
	}{
		{nil, 2, "", "ratelimit replay"},
		{[]string{"-h"}, 0, "ratelimit replay", ""},
		{[]string{"help"}, 0, "ratelimit replay", ""},
		{[]string{"reply"}, 2, "", `there is no command "reply"; want replay`},
	} {
		var stdout, stderr strings.Builder
		if code := run(tt.args, &stdout, &stderr); code != tt.code || !contains(stdout.String(), tt.stdout) || !contains(stderr.String(), tt.stderr) {
			t.Errorf("%q: got %d, %q and %q; want %d, %q and %q", tt.args, code, &stdout, &stderr, tt.code, tt.stdout, tt.stderr)
		}
	}
}

// contains reports whether a text has a part, and nothing where there should be none.
func contains(text, part string) bool {
	return (text == "") == (part == "") && strings.Contains(text, part)
}

// The first word is the command, and the others are its own.
func TestReplay(t *testing.T) {
	dir := t.TempDir()
	null, err := os.OpenFile(os.DevNull, os.O_WRONLY, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer null.Close()
	defer func(old *os.File) { os.Stdout = old }(os.Stdout)
	os.Stdout = null

	code := run([]string{"replay", "-quiet", "-policies", "replay/testdata/policies.yaml", "-out", dir, "replay/testdata/access.log"}, null, null)
	if charts, err := filepath.Glob(filepath.Join(dir, "replay.*")); code != 0 || err != nil || len(charts) != 2 {
		t.Errorf("got code %d and charts %q; want 0 and two", code, charts)
	}
}
