package redisstore_test

import (
	"context"
	"errors"
	"log/slog"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// A server that does not answer costs a few calls their Timeout and the others
// nothing, is probed, and is used again when it answers. The log has a line
// for each change and none for each call.
func TestBreaker(t *testing.T) {
	for _, tt := range []struct {
		name       string
		fail, heal func(*redistest.Proxy)
	}{
		{"silent", func(p *redistest.Proxy) { p.Blackhole() }, func(p *redistest.Proxy) { p.Pass() }},
		{"refusing", func(p *redistest.Proxy) { p.Refuse() }, func(p *redistest.Proxy) { p.Pass() }},
	} {
		t.Run(tt.name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
			r, log := impatient(t, proxy.Addr)
			if !works(r) {
				t.Fatal("does not work before the outage")
			}
			tt.fail(proxy)
			redistest.Eventually(t, 10*time.Second, "the breaker opens", func() bool {
				_, err := gcra.Take(context.Background(), r, plenty)
				return errors.Is(err, redisstore.ErrUnavailable)
			})
			sent := proxy.RequestBytes()
			for range 10_000 {
				if works(r) {
					t.Fatal("a check passed during the outage")
				}
			}
			if n := proxy.RequestBytes() - sent; n > 20_000 {
				t.Errorf("10,000 checks while the server rests sent %d bytes; want probes only", n)
			}
			tt.heal(proxy)
			redistest.Eventually(t, 10*time.Second, "the store recovers", func() bool { return works(r) })
			redistest.Eventually(t, 10*time.Second, "the log tells of both changes", func() bool { return len(log.Lines("")) == 2 })
			lines := log.Lines("")
			if !strings.Contains(lines[0], "does not answer") || !strings.Contains(lines[1], "available again") {
				t.Errorf("got log\n%s\nwant a line for the outage and one for its end", strings.Join(lines, "\n"))
			}
		})
	}
}

// What concerns one call says nothing about the server: callers who leave and
// charges that are not valid do not open the breaker.
func TestBreakerIgnoresCallers(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r, log := impatient(t, proxy.Addr)
	r.Timeout = patience
	if !works(r) {
		t.Fatal("does not work to begin with")
	}
	proxy.Delay(20 * time.Millisecond)
	for range 20 {
		ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
		if _, err := gcra.Take(ctx, r, plenty); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("got %v; want that of the caller's context", err)
		}
		cancel()
		bad := plenty
		bad.Cost = -1
		if _, err := gcra.Take(context.Background(), r, bad); err == nil {
			t.Error("a negative cost passed")
		}
	}
	if !works(r) {
		t.Error("the store does not work after callers have left")
	}
	if lines := log.Lines(""); len(lines) > 0 {
		t.Errorf("got log %q; want none", lines)
	}
}

// A server that answers, but cannot decide, is left alone like one that is
// silent, and the log says why.
func TestBreakerServerErrors(t *testing.T) {
	noCommand := func(name string) []string { return []string{"--rename-command", name, ""} }
	for _, tt := range []struct {
		reason string   // what the log has of it
		args   []string // of the server
		fail   []any    // a command
	}{
		{"OOM command not allowed", nil, []any{"config", "set", "maxmemory", "1"}},
		{"NOREPLICAS", nil, []any{"config", "set", "min-replicas-to-write", "1"}},
		{"READONLY", nil, []any{"replicaof", "127.0.0.1", "1"}},
		{"NOPERM", nil, []any{"acl", "setuser", "default", "-evalsha"}},
		{"can't run this command|ACL failure in script", nil, []any{"acl", "setuser", "default", "-set"}}, // before Redis 7.2|since
		{"unknown command .evalsha", noCommand("EVALSHA"), nil},
		{"unknown command .eval", noCommand("EVAL"), nil},
		{"Unknown (Redis )?command called from", noCommand("MGET"), nil},
	} {
		t.Run(tt.reason, func(t *testing.T) {
			server := redistest.Start(t, tt.args...)
			r, err := redisstore.Open(server.URL())
			if err != nil {
				t.Fatal(err)
			}
			t.Cleanup(func() { r.Close() })
			log := new(diagtest.Text)
			r.Logger = slog.New(slog.NewTextHandler(log, nil))
			r.Timeout = patience // a late answer would be another reason
			if tt.fail != nil {
				if !works(r) {
					t.Fatal("does not work before")
				}
				if err := server.Client().Do(t.Context(), tt.fail...).Err(); err != nil {
					t.Fatal(err)
				}
			}
			for i := 0; err == nil || !errors.Is(err, redisstore.ErrUnavailable); i++ {
				if _, err = gcra.Take(context.Background(), r, plenty); err == nil || i == 10 {
					t.Fatalf("call %d: got %v; want errors, and the server left alone after three of them", i, err)
				}
			}
			if n := r.Stats().FailedBatches; n != 3 {
				t.Errorf("Stats.FailedBatches is %d; want 3", n)
			}
			redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
			if lines := log.Lines(""); len(lines) != 1 || !regexp.MustCompile(tt.reason).MatchString(lines[0]) {
				t.Errorf("got log\n%s\nwant a line that says %q", strings.Join(lines, "\n"), tt.reason)
			}
		})
	}
}
