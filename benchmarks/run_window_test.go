package main

import (
	"io"
	"strings"
	"testing"
)

// The section about strict windows has a line for each, with figures.
func TestWindow(t *testing.T) {
	b := &bench{settings: settings{short: true, rounds: 3, progress: newProgress(io.Discard)}, redis: testRedis(t)}
	if err := runWindow(t.Context(), b); err != nil {
		t.Fatal(err)
	}
	var out strings.Builder
	b.window.report(&out)
	for _, name := range []string{goRedisSet, ours, slidingLog} {
		if !strings.Contains(out.String(), "| "+name+" | ") {
			t.Errorf("got\n%s\nwant a line of %s", out.String(), name)
		}
	}
	if small, large := b.window.usage[slidingLog][1], b.window.usage[slidingLog][1000]; small < 50 || large < 1000*8 {
		t.Errorf("got %v bytes for 1 check and %v for 1000; want 8 or more a check", small, large)
	}
	t.Log(out.String())
}
