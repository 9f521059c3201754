package main

import (
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// testRedis is one Redis for the test.
func testRedis(t *testing.T) deployment {
	t.Helper()
	redistest.Need(t)
	return oneRedis(t)
}

func TestCountCommands(t *testing.T) {
	got, err := countCommands("# Commandstats\r\ncmdstat_evalsha:calls=3,usec=10\r\ncmdstat_info:calls=9,usec=1\r\ncmdstat_get:calls=4,usec=2\r\n")
	if err != nil || got != 7 {
		t.Errorf("got %d, error %v; want 7", got, err)
	}
}
