package main

import (
	"context"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// The names of limiters on Redis that no target names.
const (
	throttledIn  = "throttled"
	ululeIn      = "ulule"
	nativeGoGCRA = "go-redis_GCRA"
	nativeGCRA   = "rueidis_GCRA"
)

// limitersOnRedis are all of them, and plainCommands what they are compared with.
var limitersOnRedis = []contestant{
	{ours, newOurs},
	{redisRate, newRedisRate},
	{redisRateAP, newRedisRateAP},
	{rueidisGCRA, newRueidisGCRA},
	{throttledIn, newThrottledRedis},
	{ululeIn, newUluleRedis},
}

// native are those that need the command GCRA, which no release of Redis has had so far.
var native = []contestant{{nativeGCRA, newNativeGCRA}, {nativeGoGCRA, newNativeGoGCRA}}

// patience is long enough that noise is no failure.
const patience = 5 * time.Second

func newOurs(d deployment, l limit) (func() check, error) {
	return storeCaller(newStore(d.dial(), patience, 0), l), nil
}

func newSlidingLog(d deployment, l limit) (func() check, error) {
	return storeCaller(newLog(d.dial(), patience), l), nil
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

func newRedisRate(d deployment, l limit) (func() check, error) {
	return redisRateCaller(redis_rate.NewLimiter(d.dial()), l), nil
}

// newRedisRateAP has go-redis put the commands of several callers into one
// pipeline.
func newRedisRateAP(d deployment, l limit) (func() check, error) {
	pipeline, err := d.dial().AutoPipeline()
	return redisRateCaller(redis_rate.NewLimiter(pipeline), l), err
}

func redisRateCaller(limiter *redis_rate.Limiter, l limit) func() check {
	rate := redis_rate.Limit{Rate: int(l.count), Burst: int(l.burst), Period: l.per}
	return shared(func(subject string) (bool, error) {
		res, err := limiter.Allow(context.Background(), subject, rate)
		return err == nil && res.Allowed > 0, err
	})
}

func newThrottledRedis(d deployment, l limit) (func() check, error) {
	store, err := throttledredis.NewCtx(d.dial(), "throttled:")
	if err != nil {
		return nil, err
	}
	limiter, err := newThrottled(store, l)
	return throttledCaller(limiter), err
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

func newUluleRedis(d deployment, l limit) (func() check, error) {
	store, err := ululeredis.NewStore(d.dial())
	return ululeCaller(limiter.New(store, ululeRate(l))), err
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

// withQuota are contestants that take from a rate and a quota: ours in one admission.
func withQuota(quota limit) []contestant {
	return []contestant{
		{ours, func(d deployment, rate limit) (func() check, error) {
			store := newStore(d.dial(), patience, 0)
			return func() check {
				charges := []gcra.Charge{
					{Policy: "rate", Limit: gcra.Limit{Count: rate.count, Per: rate.per, Burst: rate.burst}, Cost: 1},
					{Policy: "quota", Limit: gcra.Quota(quota.count, gcra.Monthly), Cost: 1},
				}
				return func(subject string) (bool, error) {
					charges[0].Subject, charges[1].Subject = subject, subject
					return store.Take(context.Background(), charges)
				}
			}, nil
		}},
		{twoCalls, func(d deployment, rate limit) (func() check, error) {
			limiter := redis_rate.NewLimiter(d.dial())
			first, second := redisRateCaller(limiter, rate)(), redisRateCaller(limiter, quota)()
			return shared(func(subject string) (bool, error) {
				if ok, err := first(subject + ":rate"); !ok || err != nil {
					return false, err
				}
				return second(subject + ":quota")
			}), nil
		}},
	}
}
