package main

import (
	"context"
	"slices"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// The names of the limiters on Redis. Ours is called the same everywhere.
const (
	ours         = "ratelimit"
	redisRate    = "redis_rate"
	redisRateAP  = "redis_rate, AutoPipeline"
	throttledIn  = "throttled"
	ululeIn      = "ulule"
	rueidisGCRA  = "rueidis script"
	nativeGoGCRA = "go-redis GCRA"
	nativeGCRA   = "rueidis GCRA"
)

// builder makes a contestant with a limit, on a client of its own.
type builder func(deployment, limit) (contestant, error)

// limitersOnRedis are all of them, and plainCommands what they are compared with.
var limitersOnRedis = []builder{newOurs, newRedisRate, newRedisRateAP, newRueidisGCRA, newThrottledRedis, newUluleRedis}

// redisContestants are those that one Redis can have.
func redisContestants(ctx context.Context, d deployment) ([]builder, error) {
	native, err := d.hasGCRA(ctx)
	all := append(slices.Clone(limitersOnRedis), plainCommands...)
	if native {
		all = append(all, newNativeGCRA, newNativeGoGCRA)
	}
	return all, err
}

// build makes contestants on a deployment.
func build(d deployment, l limit, builders ...builder) (cs []contestant, err error) {
	for _, b := range builders {
		c, err := b(d, l)
		if err != nil {
			closeAll(cs)
			return nil, err
		}
		c.on = d
		cs = append(cs, c)
	}
	return cs, nil
}

// onGoRedis is a contestant with a client of go-redis.
func onGoRedis(d deployment, name string, caller func(redis.UniversalClient) (func() check, error)) (contestant, error) {
	client := d.dial()
	c := contestant{name: name, close: func() { _ = client.Close() }}
	var err error
	if c.caller, err = caller(client); err != nil {
		c.close()
	}
	return c, err
}

// patience is long enough that noise is no failure.
const patience = 5 * time.Second

func newOurs(d deployment, l limit) (contestant, error) {
	return onGoRedis(d, ours, func(client redis.UniversalClient) (func() check, error) {
		store := redisstore.New(client)
		store.Timeout = patience
		return storeCaller(store, l), nil
	})
}

// policy is the name of a policy that is alone, as httpclient gives it.
const policy = "default"

// storeCaller makes callers of a store of ours, each with charges of its own.
func storeCaller(store gcra.Store, l limit) func() check {
	ctx := context.Background()
	return func() check {
		charges := []gcra.Charge{{
			Policy: policy,
			Limit:  gcra.Limit{Count: l.count, Per: l.per, Burst: l.burst},
			Cost:   1,
		}}
		return func(subject string) (bool, error) {
			charges[0].Subject = subject
			_, err := store.Take(ctx, charges)
			return charges[0].Result.Allowed, err
		}
	}
}

func newRedisRate(d deployment, l limit) (contestant, error) {
	return onGoRedis(d, redisRate, func(client redis.UniversalClient) (func() check, error) {
		return redisRateCaller(redis_rate.NewLimiter(client), l), nil
	})
}

// newRedisRateAP has go-redis put the commands of several callers into one
// pipeline.
func newRedisRateAP(d deployment, l limit) (contestant, error) {
	return onGoRedis(d, redisRateAP, func(client redis.UniversalClient) (func() check, error) {
		pipeline, err := client.AutoPipeline()
		return redisRateCaller(redis_rate.NewLimiter(pipeline), l), err
	})
}

func redisRateCaller(limiter *redis_rate.Limiter, l limit) func() check {
	rate := redis_rate.Limit{Rate: int(l.count), Burst: int(l.burst), Period: l.per}
	return shared(func(subject string) (bool, error) {
		res, err := limiter.Allow(context.Background(), subject, rate)
		return err == nil && res.Allowed > 0, err
	})
}

func newThrottledRedis(d deployment, l limit) (contestant, error) {
	return onGoRedis(d, throttledIn, func(client redis.UniversalClient) (func() check, error) {
		store, err := throttledredis.NewCtx(client, "throttled:")
		if err != nil {
			return nil, err
		}
		limiter, err := newThrottled(store, l)
		return throttledCaller(limiter), err
	})
}

func newThrottled(store throttled.GCRAStoreCtx, l limit) (*throttled.GCRARateLimiterCtx, error) {
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttled.RateQuota{
		MaxRate:  throttled.PerDuration(int(l.count), l.per),
		MaxBurst: int(l.burst) - 1,
	})
	if err != nil {
		return nil, err
	}
	// It tries again when another caller was faster, ten times by default, and then
	// fails; on a hot key that would be an error and no answer.
	limiter.SetMaxCASAttemptsLimit(1_000_000)
	return limiter, nil
}

func throttledCaller(limiter throttled.RateLimiterCtx) func() check {
	return shared(func(subject string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(context.Background(), subject, 1)
		return !limited, err
	})
}

func newUluleRedis(d deployment, l limit) (contestant, error) {
	return onGoRedis(d, ululeIn, func(client redis.UniversalClient) (func() check, error) {
		store, err := ululeredis.NewStore(client)
		if err != nil {
			return nil, err
		}
		return ululeCaller(limiter.New(store, ululeRate(l))), nil
	})
}

func ululeRate(l limit) limiter.Rate { return limiter.Rate{Period: windowOf(l), Limit: l.burst} }

// windowOf is the period for fixed windows: long enough that none ends, and
// with it the count, in the middle of a measurement.
func windowOf(l limit) time.Duration { return max(l.per, time.Hour) }

func ululeCaller(lim *limiter.Limiter) func() check {
	return shared(func(subject string) (bool, error) {
		res, err := lim.Get(context.Background(), subject)
		return !res.Reached, err
	})
}
