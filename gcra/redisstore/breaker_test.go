package redisstore_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Canceled calls and invalid charges do not open the breaker.
func TestBreakerIgnoresCallers(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := defaultClientStore(t, proxy.Addr, patience)
	if !answers(r) {
		t.Fatal("got no answer to begin with")
	}
	proxy.Delay(20 * time.Millisecond)

	for range 20 {
		ctx, cancel := context.WithTimeout(t.Context(), time.Millisecond)
		if _, err := gcra.Take(ctx, r, plenty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want DeadlineExceeded", err)
		}
		cancel()
		bad := plenty
		bad.Cost = -1
		if _, err := gcra.Take(t.Context(), r, bad); err == nil {
			t.Error("got no error for a negative cost")
		}
	}

	if !answers(r) {
		t.Error("got no answer after canceled calls")
	}
	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("got log %q; want none", lines)
	}
}

// A server whose answers are errors opens the breaker too, and so does a proxy that answers for a server that is gone,
// whatever its error. An error that the script raises does not, since one key or value may be its cause.
func TestBreakerErrors(t *testing.T) {
	for text, opens := range map[string]bool{
		"OOM command not allowed when used memory > 'maxmemory'": true,
		"NOREPLICAS Not enough good replicas to write":           true,
		"READONLY You can't write against a read only replica":   true,
		"ERR upstream connection failure":                        true,
		"no upstream host":                                       true,
		"ERR odd script: 5f0a, on @user_script:57":               false,
		"ERR Error running script: @user_script:57: odd":         false,
		"WRONGTYPE odd": false,
	} {
		t.Run(text, func(t *testing.T) {
			log := new(diagtest.Text)
			r := openStore(t, "redis://"+answering(t, "-"+text+"\r\n", "eval", "evalsha"), config{Timeout: patience, Logger: log.Logger()})
			for i := range 10 {
				_, err := gcra.Take(t.Context(), r, plenty)
				if open := errors.Is(err, redisstore.ErrUnavailable); err == nil || open != (opens && i >= 3) {
					t.Fatalf("call %d: got %v; want an error, of an open breaker from the fourth call on: %v", i, err, opens)
				}
			}

			s := r.Stats()
			if opens && (s.FailedBatches != 3 || !strings.Contains(s.Servers[0].Reason, strings.TrimSuffix(text, "."))) {
				t.Errorf("got %+v; want 3 failed batches and %q", s, text)
			}
			redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
			if lines := log.Lines(""); len(lines) != 1 || !strings.Contains(lines[0], text) || !strings.Contains(lines[0], "code=redis-refuses") {
				t.Errorf("got log\n%s\nwant a line with %q", strings.Join(lines, "\n"), text)
			}
		})
	}
}
