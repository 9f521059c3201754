package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// The settings that a client of the user's own lacks are logged once, at level INFO. Nothing is logged of
// a client that has them, or that Open has made.
func TestSettingsOfAClientAreHinted(t *testing.T) {
	server := redistest.Start(t)
	plain := &redis.Options{Addr: server.Addr}
	both := &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond}
	short := openStore(t, server.URL())
	short.Timeout = 20 * time.Millisecond
	for name, tt := range map[string]struct {
		store *redisstore.Store
		lines int
	}{
		"a plain client":          {redisstore.New(newClient(t, plain)), 1},
		"with both settings":      {redisstore.New(newClient(t, both)), 0},
		"Open":                    {openStore(t, server.URL()), 0},
		"Open, a shorter Timeout": {short, 0},
	} {
		log := logged(tt.store)
		redistest.Eventually(t, patience, name+" to answer", func() bool { return answers(tt.store) })
		redistest.Eventually(t, patience, name+" to answer again", func() bool { return answers(tt.store) })
		hints, others := log.Lines("code=redis-settings"), log.Lines("")
		if len(hints) != tt.lines || len(others) != 0 {
			t.Errorf("%s: got %q and %q; want %d lines of redis-settings and no other", name, hints, others, tt.lines)
		}
		if tt.lines == 1 && !strings.Contains(hints[0], "level=INFO") {
			t.Errorf("%s: got %s; want level INFO", name, hints[0])
		}
	}
}
