package main

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

// All calls succeed in the end: 3 at once, and then 2 a second.
func TestRun(t *testing.T) {
	var out bytes.Buffer
	start := time.Now()
	if err := run(&out); err != nil {
		t.Fatalf("%v, after\n%s", err, out.String())
	}
	took := time.Since(start)
	lines := strings.Split(strings.TrimSpace(out.String()), "\n")
	if len(lines) != 12 || !strings.HasSuffix(lines[0], ", remaining 2") || took < (12-3)*500*time.Millisecond {
		t.Errorf("got\n%s\nin %v; want 12 calls, the first with 2 remaining, in at least %v", out.String(), took, (12-3)*500*time.Millisecond)
	}
}
