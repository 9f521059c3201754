package main

import (
	"bytes"
	"context"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// Without -redis the process prints that the rate is its own, and its progress once a second. No turn is at
// a whole second, when progress is printed.
func TestAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		if err := run(t.Context(), []string{"-rate", "10/1.1s", "-workers", "4", "-tasks", "25", "-work", "0s"}, &out); err != nil {
			t.Fatal(err)
		}
		for _, want := range []string{
			"4 workers, process ", "10/1.1s burst 1 for this process alone; -redis shares it with others.\n",
			"    1s  10", "    2s  19", " in the last second, 4 waiting, 0 working\n",
			"Finished: 25 of 25 tasks done in 2.6s, 9.5 a second.\n",
		} {
			if !strings.Contains(out.String(), want) {
				t.Errorf("got\n%s\nwant %q", out.String(), want)
			}
		}
	})
}

func TestOnRedis(t *testing.T) {
	var out bytes.Buffer
	args := []string{"-redis", redistest.Start(t).URL(), "-rate", "20/second", "-tasks", "5", "-work", "0s"}
	if err := run(t.Context(), args, &out); err != nil || !strings.Contains(out.String(), "Finished: 5 of 5 tasks") {
		t.Errorf("got %v and\n%s\nwant all tasks", err, out.String())
	}
}

// While the store fails, no task begins.
func TestNoTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Second)
		defer cancel()
		p := &pool{turns: turns.Turns{Store: doubles.Down{}}, workers: 3, tasks: 3, out: &lines{w: &out}}
		p.run(ctx)
		if strings.Count(out.String(), "No turns until Redis works: ") != 1 || !strings.Contains(out.String(), "Stopped: 0 of 3 tasks") {
			t.Errorf("got\n%s\nwant the error once and no task", out.String())
		}
	})
}
