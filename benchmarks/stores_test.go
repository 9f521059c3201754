package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// The stores of this module, as the benchmarks set them up. A setting of 0 is the default.

func newStore(client redis.UniversalClient, timeout, denialTTL time.Duration) *redisstore.Store {
	return must(redisstore.New(client, redisstore.Config{Timeout: timeout, DenialTTL: denialTTL}))
}

// openStore is Open, and the options of its client.
func openStore(url string, timeout time.Duration) (*redisstore.Store, *redis.Options, error) {
	options, err := redisstore.ClientOptions(url)
	if err != nil {
		return nil, nil, err
	}
	store, err := redisstore.Open(url, redisstore.Config{Timeout: timeout})
	return store, options.Simple(), err
}

func newLog(client redis.UniversalClient, timeout time.Duration) *slidinglog.Store {
	return must(slidinglog.New(client, slidinglog.Config{Timeout: timeout}))
}

func must[S any](store S, err error) S {
	if err != nil {
		panic(err)
	}
	return store
}
