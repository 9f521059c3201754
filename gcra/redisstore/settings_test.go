package redisstore_test

import (
	"context"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// The settings that a client of the user's own lacks are logged once, at level INFO. Nothing is logged of
// a client that has them, or that Open has made.
func TestSettingsOfAClientAreHinted(t *testing.T) {
	server := redistest.Start(t)
	plain := &redis.Options{Addr: server.Addr}
	both := &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond}
	on := func(o *redis.Options) func(config) *redisstore.Store {
		return func(cfg config) *redisstore.Store { return storeOn(t, newClient(t, o), cfg) }
	}

	open := func(cfg config) *redisstore.Store { return openStore(t, server.URL(), cfg) }
	for name, tt := range map[string]struct {
		open    func(config) *redisstore.Store
		timeout time.Duration
		lines   int
	}{
		"a plain client":          {on(plain), 0, 1},
		"with both settings":      {on(both), 0, 0},
		"Open":                    {open, 0, 0},
		"Open, a shorter Timeout": {open, 20 * time.Millisecond, 0},
	} {
		log := new(diagtest.Text)
		r := tt.open(config{Timeout: tt.timeout, Logger: log.Logger()})
		redistest.Eventually(t, patience, name+" to answer", func() bool { return answers(r) })
		redistest.Eventually(t, patience, name+" to answer again", func() bool { return answers(r) })
		hints, others := log.Lines("code=redis-settings"), log.Lines("")
		if len(hints) != tt.lines || len(others) != 0 {
			t.Errorf("%s: got %q and %q; want %d lines of redis-settings and no other", name, hints, others, tt.lines)
		}

		if tt.lines == 1 && !strings.Contains(hints[0], "level=INFO") {
			t.Errorf("%s: got %s; want level INFO", name, hints[0])
		}
	}
}

// The client of Open has a PoolTimeout within a short Timeout too, so a lone caller sends by itself.
func TestOpenWithAShortTimeoutSendsInline(t *testing.T) {
	r := openStore(t, redistest.Start(t).URL(), config{Timeout: 20 * time.Millisecond, DenialTTL: -1, Logger: quiet})
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	go func() {
		for ctx.Err() == nil {
			_, _ = gcra.Take(context.Background(), r, hourly("a", 10))
		}
	}()

	stacks := make([]byte, 1<<20)
	redistest.Eventually(t, patience, "a caller to send", func() bool {
		return strings.Contains(string(stacks[:runtime.Stack(stacks, true)]), ".sendInline(")
	})
}
