package main

import (
	"context"
	"fmt"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

const (
	twoCalls = "two calls of redis_rate"
	rateOnly = ", the rate alone" // ends the name of ours without the quota
)

// withQuota are contestants that take from a rate and a quota: ours in one admission,
// redis_rate in two calls, as it has no quotas: a second rate stands for one.
func withQuota(quota limit) []builder {
	return []builder{
		func(d deployment, rate limit) (contestant, error) {
			return onGoRedis(d, ours, func(client redis.UniversalClient) (func() check, error) {
				return bothCaller(client, rate, quota), nil
			})
		},
		func(d deployment, rate limit) (contestant, error) {
			return onGoRedis(d, twoCalls, func(client redis.UniversalClient) (func() check, error) {
				limiter := redis_rate.NewLimiter(client)
				first, second := redisRateCaller(limiter, rate)(), redisRateCaller(limiter, quota)()
				return shared(func(subject string) (bool, error) {
					if ok, err := first(subject + ":rate"); !ok || err != nil {
						return false, err
					}
					return second(subject + ":quota")
				}), nil
			})
		},
	}
}

func bothCaller(client redis.UniversalClient, rate, quota limit) func() check {
	store := redisstore.New(client)
	store.Timeout = patience
	return func() check {
		charges := []gcra.Charge{
			{Policy: "rate", Limit: gcra.Limit{Count: rate.count, Per: rate.per, Burst: rate.burst}, Cost: 1},
			{Policy: "quota", Limit: gcra.Quota(quota.count, gcra.Monthly), Cost: 1},
		}
		return func(subject string) (bool, error) {
			charges[0].Subject, charges[1].Subject = subject, subject
			return store.Take(context.Background(), charges)
		}
	}
}

// runQuota compares checks of a rate and a quota together.
func runQuota(ctx context.Context, b *bench) error {
	if err := assertsQuota(b.redis); err != nil {
		return err
	}
	cs, err := asserted(b.redis, roomy, withQuota(roomy)...) // asserts the rate
	if err != nil {
		return err
	}
	defer closeAll(cs)
	alone, err := asserted(b.redis, roomy, newOurs)
	if err != nil {
		return err
	}
	defer closeAll(alone)
	alone[0].name += rateOnly
	b.say("a rate and a quota, %s: callers %d", keysName(manyKeys), manyCallers)
	b.quota, err = b.several(ctx, append(cs, alone...))
	return err
}

// assertsQuota asserts that each contestant keeps a tight quota where the rate allows
// more.
func assertsQuota(d deployment) error {
	cs, err := build(d, roomy, withQuota(tight)...)
	if err != nil {
		return err
	}
	defer closeAll(cs)
	return assertAll(cs, fmt.Sprint("quota:", tightRuns.Add(1), ":"))
}
