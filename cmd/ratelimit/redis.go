package main

import (
	"cmp"
	"log/slog"
	"os"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// nodePatience is for each of several nodes, which a client may ask one after another.
const (
	patience     = 5 * time.Second
	nodePatience = time.Second
)

// connect returns a client of the Redis that --redis or REDIS_URL names.
func (c *command) connect() (redis.UniversalClient, error) {
	url := cmp.Or(c.redis, os.Getenv("REDIS_URL"))
	if url == "" {
		return nil, usagef("--redis is missing; want a URL such as redis://localhost:6379/0, or set REDIS_URL")
	}
	o, err := redisstore.ClientOptions(url)
	if err != nil {
		return nil, usageError{err}
	}
	logging.Disable() // what fails is returned as an error
	o.DialTimeout, o.ReadTimeout, o.WriteTimeout, o.PoolTimeout = patience, patience, patience, patience
	if len(o.Addrs) > 1 {
		o.DialTimeout, o.ReadTimeout, o.WriteTimeout = nodePatience, nodePatience, nodePatience
	}
	o.MinIdleConns = 0
	return redis.NewUniversalClient(o), nil
}

// store returns the servers' store. What it would log the command returns as an error.
func (c *command) store(client redis.UniversalClient) (*redisstore.Store, error) {
	return redisstore.New(client, redisstore.Config{Prefix: c.prefix, Timeout: patience, Logger: slog.New(slog.DiscardHandler)})
}

// failed says what is wrong with Redis in the words of [redisstore.Store.Ping].
func failed(client redis.UniversalClient, err error) error {
	conn, address := rediskit.ConnOf(client)
	problem := rediskit.Diagnose(err, conn)
	if problem.Code == "" {
		return err
	}
	return &rediskit.ServerError{Server: address, Problem: problem, Err: err}
}
