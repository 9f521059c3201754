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
// cluster or to each shard of a ring, authenticates, and runs the store's script on the key
// <Prefix>{ping}, on a cluster <Prefix>{ping0} or another number, which expires after 10
// seconds. It leaves out masters without slots, and shards that the ring has found down unless
// all are. The error says what is wrong and, if that is known, what to do about it, on a line for each
// server. Ping needs no more of the user's ACL than Take.
//
// It also tests the kind of a single server and of the shards of a ring, see
// [gcra.ServerKind]; one of kind KeysApart is an error.
//
// It logs a warning if the server evicts keys when its memory is full: an evicted key
// is a full bucket, and of a quota the whole quota once more. It sees that from Redis
// 7.0 on, if the user may run INFO.
//
// Ping calls Redis even while the circuit breaker is open. Without a deadline in ctx
// it takes at most 2 s; Timeout does not bound it. Call it when a program starts, to
// see what is wrong; the program may start all the same.
func (s *Store) Ping(ctx context.Context) error {
	s.dials.forget()
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
