package main

import (
	"strings"
	"testing"
)

// What a Fatal of redistest says is returned, and what was started ends.
func TestWithServers(t *testing.T) {
	ended := 0
	err := withServers(func(t testing.TB) error {
		t.Cleanup(func() { ended++ })
		t.Cleanup(func() { ended++ })
		t.Fatalf("no %s", "server")
		return nil
	})
	if err == nil || err.Error() != "no server" || ended != 2 {
		t.Errorf("got error %v, %d cleanups; want no server, 2", err, ended)
	}
	err = withServers(func(t testing.TB) error {
		t.Errorf("a process: %v", errDenied)
		return nil
	})
	if err == nil || !strings.Contains(err.Error(), errDenied.Error()) {
		t.Errorf("got error %v; want what Errorf said", err)
	}
}
