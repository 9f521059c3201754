package redistest

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// A RATELIMIT_TEST_SERVER that does not work fails every test that needs
// a server, required or not, and the message names the variable and the value.
func TestProgramVariable(t *testing.T) {
	dir := t.TempDir()
	script := func(name, text string) string {
		path := filepath.Join(dir, name)
		if err := os.WriteFile(path, []byte("#!/bin/sh\n"+text+"\n"), 0o700); err != nil {
			t.Fatal(err)
		}
		return path
	}

	for _, tt := range []struct{ value, why string }{
		{filepath.Join(dir, "nothing"), "no such file"},
		{dir, "is a directory"},
		{"./redis-server", "no such file"},
		{script("no-server", "echo hello"), `--version says "hello"`},
		{script("failing", "exit 3"), "--version: exit status 3"},
	} {
		t.Setenv(envVar, "")
		t.Setenv(programVar, tt.value)
		var got verdict
		Need(&got)
		if got.skipped != "" {
			t.Errorf("%s=%q: got skipped: %s; want a failure", programVar, tt.value, got.skipped)
		}

		for _, want := range []string{programVar + ` is "` + tt.value + `"`, tt.why, "want the absolute path of a redis-server or valkey-server"} {
			if !strings.Contains(got.failed, want) {
				t.Errorf("%s=%q: got %q; want %q in it", programVar, tt.value, got.failed, want)
			}
		}

		if available() {
			t.Errorf("%s=%q: available: got true", programVar, tt.value)
		}
	}
}
