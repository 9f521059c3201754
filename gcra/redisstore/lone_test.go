package redisstore_test

import (
	"context"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// BenchmarkLone measures a check by one caller with default settings, as a multiple of the shortest
// script that a limiter could send, on a client with the same options.
func BenchmarkLone(b *testing.B) {
	server := redistest.Start(b)
	opened := func(b *testing.B) *redis.Client {
		o, err := redisstore.ClientOptions(server.URL())
		if err != nil {
			b.Fatal(err)
		}
		return newClient(b, o.Simple())
	}
	check := func(r *redisstore.Store) func(string) error {
		charges := make([]gcra.Charge, 1)
		return func(subject string) error {
			charges[0] = gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerSecond(1000), Cost: 1}
			_, err := r.Take(context.Background(), charges)
			return err
		}
	}

	b.Run("Script", func(b *testing.B) {
		client := opened(b)
		redistest.Lone(b, "SET", redistest.Set(client), redistest.Script(client))
	})
	b.Run("Open", func(b *testing.B) {
		redistest.Lone(b, "script", redistest.Script(opened(b)), check(openStore(b, server.URL())))
	})
	b.Run("NewBothSettings", func(b *testing.B) {
		client := newClient(b, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond})
		redistest.Lone(b, "script", redistest.Script(client), check(redisstore.New(client)))
	})
	b.Run("NewPlain", func(b *testing.B) {
		client := newClient(b, &redis.Options{Addr: server.Addr})
		redistest.Lone(b, "script", redistest.Script(client), check(redisstore.New(client)))
	})
}
