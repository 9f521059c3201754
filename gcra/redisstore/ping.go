package redisstore

import (
	"context"
	_ "embed"
	"fmt"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Ping reports whether the store works: it connects to the server, to each master of a
// cluster that has slots or to each shard that a ring has not found down, authenticates,
// and runs the store's script on a key <Prefix>{ping}, on a cluster <Prefix>{ping0} or
// another number. The error says what is wrong and, if that is known, what to do about it.
//
// It also tests the kind of a single server and of the shards of a ring, see
// [redisstats.Kind]; an Unusable one is an error. It logs a warning if it sees that
// the server evicts keys when its memory is full; before Redis 7.0, or if the user may not
// run INFO, it does not see that.
//
// Ping does not heed the circuit breaker and Timeout: without a deadline in ctx it takes
// about 2 s at most. Call it when a program starts, to see what is wrong; the program may
// start all the same.
func (s *Store) Ping(ctx context.Context) error {
	s.dials.Forget()
	err := rediskit.Ping(ctx, s.client, s.prefix, func(ctx context.Context, server redis.UniversalClient, key string) error {
		if err := s.sender.Check(ctx, server, key); err != nil {
			return err
		}
		s.warnEviction(ctx, server, key)
		return nil
	})
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return nil
}

//go:embed evicts.lua
var evictsLua string

// warnEviction logs if the server evicts keys. That it cannot be asked is no problem of
// the store.
func (s *Store) warnEviction(ctx context.Context, server redis.UniversalClient, key string) {
	policy, err := server.Eval(ctx, evictsLua, []string{key}).Text()
	if err != nil || policy == "" || policy == "noeviction" {
		return
	}
	_, addr := rediskit.ConnOf(server)
	s.log.Report(diag.RedisEvicts, addr, "redis evicts keys when its memory is full, and an evicted key is a full bucket or an unused quota: set maxmemory-policy noeviction",
		"server", addr, "maxmemory_policy", policy)
}
