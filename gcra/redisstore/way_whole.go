package redisstore

import (
	"context"

	"github.com/redis/go-redis/v9"
)

// wayWhole is for one keyspace: one script for all subjects of the batch.
type wayWhole struct{}

func (wayWhole) shares(string) string { return "" }

func (wayWhole) send(ctx context.Context, b *batch) { b.scripts[0].send(ctx, b.client, ordinary) }

// notRun is true when a server has become a cluster.
func (wayWhole) notRun(s *script) bool { return redis.HasErrorPrefix(s.err, "CROSSSLOT") }
