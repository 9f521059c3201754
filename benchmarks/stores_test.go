package main

import (
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/slidinglog"
)

// The stores of this module, as the benchmarks set them up. A setting of 0 is the default.

func newStore(client redis.UniversalClient, timeout, denialTTL time.Duration) *redisstore.Store {
	store := redisstore.New(client)
	store.Timeout, store.DenialTTL = timeout, denialTTL
	return store
}

// openStore is Open, and the options of its client.
func openStore(url string, timeout time.Duration) (*redisstore.Store, *redis.Options, error) {
	options, err := redisstore.ClientOptions(url)
	if err != nil {
		return nil, nil, err
	}
	store, err := redisstore.Open(url)
	if err != nil {
		return nil, nil, err
	}
	store.Timeout = timeout
	return store, options.Simple(), nil
}

func newLog(client redis.UniversalClient, timeout time.Duration) *slidinglog.Redis {
	log := slidinglog.NewRedis(client)
	log.Timeout = timeout
	return log
}
