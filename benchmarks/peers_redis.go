package main

import (
	"context"
	"strconv"
	"time"

	"github.com/go-redis/redis_rate/v10"
	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
	"github.com/throttled/throttled/v2"
	throttledredis "github.com/throttled/throttled/v2/store/goredisstore.v9"
	"github.com/ulule/limiter/v3"
	ululeredis "github.com/ulule/limiter/v3/drivers/store/redis"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// The names of the contestants on Redis. Ours is called the same everywhere.
const (
	ours        = "ratelimit"
	redisRate   = "redis_rate"
	throttledIn = "throttled"
	ululeIn     = "ulule"
	rueidisGCRA = "rueidis script"
	rueidisSet  = "rueidis SET"
	goRedisSet  = "go-redis SET"
	goRedisPing = "go-redis PING"
)

// redisContestants are all of them with the limit, on clients of their own.
func redisContestants(s *server, l limit) (cs []contestant, err error) {
	defer func() {
		if err != nil {
			closeAll(cs)
		}
	}()
	for _, build := range []func(*server, limit) (contestant, error){
		newOurs, newGoRedisSet, newRedisRate, newRueidisSet, newRueidisGCRA,
		newThrottledRedis, newUluleRedis, newGoRedisPing,
	} {
		c, err := build(s, l)
		if err != nil {
			return cs, err
		}
		cs = append(cs, c)
	}
	return cs, nil
}

// patience is long enough that noise is no failure.
const patience = 5 * time.Second

func newOurs(s *server, l limit) (contestant, error) {
	client := s.client()
	store := redisstore.New(client)
	store.Timeout = patience
	return contestant{name: ours, caller: storeCaller(store, l), close: func() { _ = client.Close() }}, nil
}

// policy is the name that package middleware gives a policy that is alone.
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

func newRedisRate(s *server, l limit) (contestant, error) {
	client := s.client()
	limiter := redis_rate.NewLimiter(client)
	rate := redis_rate.Limit{Rate: int(l.count), Burst: int(l.burst), Period: l.per}
	return contestant{
		name: redisRate,
		caller: shared(func(subject string) (bool, error) {
			res, err := limiter.Allow(context.Background(), subject, rate)
			return err == nil && res.Allowed > 0, err
		}),
		close: func() { _ = client.Close() },
	}, nil
}

func newThrottledRedis(s *server, l limit) (contestant, error) {
	client := s.client()
	store, err := throttledredis.NewCtx(client, "throttled:")
	if err != nil {
		return contestant{}, err
	}
	limiter, err := throttled.NewGCRARateLimiterCtx(store, throttledQuota(l))
	if err != nil {
		return contestant{}, err
	}
	// It tries again when another caller was faster, ten times by default, and then
	// fails; on a hot key that would be an error and no answer.
	limiter.SetMaxCASAttemptsLimit(1_000_000)
	return contestant{name: throttledIn, caller: throttledCaller(limiter), close: func() { _ = client.Close() }}, nil
}

func throttledQuota(l limit) throttled.RateQuota {
	return throttled.RateQuota{MaxRate: throttled.PerDuration(int(l.count), l.per), MaxBurst: int(l.burst) - 1}
}

func throttledCaller(limiter throttled.RateLimiterCtx) func() check {
	return shared(func(subject string) (bool, error) {
		limited, _, err := limiter.RateLimitCtx(context.Background(), subject, 1)
		return !limited, err
	})
}

func newUluleRedis(s *server, l limit) (contestant, error) {
	client := s.client()
	store, err := ululeredis.NewStore(client)
	if err != nil {
		return contestant{}, err
	}
	return contestant{
		name:   ululeIn,
		caller: ululeCaller(limiter.New(store, ululeRate(l))),
		close:  func() { _ = client.Close() },
	}, nil
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

// oneKeyGCRA is the least that a rate limit can do in a script: a key, a
// decision, no group of limits.
var oneKeyGCRA = rueidis.NewLuaScript(`
local time = redis.call('TIME')
local now = (time[1] - 1735689600) * 1000000 + time[2]
local tat = tonumber(redis.call('GET', KEYS[1]) or now)
if tat < now then tat = now end
local emission, capacity = tonumber(ARGV[1]), tonumber(ARGV[2])
local ahead = tat + emission - now
if ahead > capacity then return -(ahead - capacity) end
redis.call('SET', KEYS[1], string.format('%.0f', tat + emission), 'PX', string.format('%.0f', math.max(math.ceil(ahead / 1000), 1)))
return capacity - ahead
`)

func newRueidis(s *server) (rueidis.Client, error) {
	return rueidis.NewClient(rueidis.ClientOption{
		InitAddress:  []string{s.addr},
		DisableCache: true, // of answers, which has nothing to do here
	})
}

func newRueidisGCRA(s *server, l limit) (contestant, error) {
	client, err := newRueidis(s)
	if err != nil {
		return contestant{}, err
	}
	emission := strconv.FormatInt(l.emission().Microseconds(), 10)
	capacity := strconv.FormatInt(l.emission().Microseconds()*l.burst, 10)
	return contestant{
		name: rueidisGCRA,
		caller: shared(func(subject string) (bool, error) {
			left, err := oneKeyGCRA.Exec(context.Background(), client,
				[]string{"one:" + subject}, []string{emission, capacity}).AsInt64()
			return left >= 0, err
		}),
		close: client.Close,
	}, nil
}

// value is as long as a theoretical arrival time.
const value = "1700000000000000"

func newRueidisSet(s *server, _ limit) (contestant, error) {
	client, err := newRueidis(s)
	if err != nil {
		return contestant{}, err
	}
	return contestant{
		name:    rueidisSet,
		command: true,
		caller: shared(func(subject string) (bool, error) {
			err := client.Do(context.Background(), client.B().Set().Key(subject).Value(value).Build()).Error()
			return err == nil, err
		}),
		close: client.Close,
	}, nil
}

func newGoRedisSet(s *server, _ limit) (contestant, error) {
	return newCommand(s, goRedisSet, func(ctx context.Context, client *redis.Client, subject string) error {
		return client.Set(ctx, subject, value, 0).Err()
	})
}

func newGoRedisPing(s *server, _ limit) (contestant, error) {
	return newCommand(s, goRedisPing, func(ctx context.Context, client *redis.Client, _ string) error {
		return client.Ping(ctx).Err()
	})
}

func newCommand(s *server, name string, do func(context.Context, *redis.Client, string) error) (contestant, error) {
	client := s.client()
	return contestant{
		name:    name,
		command: true,
		caller: shared(func(subject string) (bool, error) {
			err := do(context.Background(), client, subject)
			return err == nil, err
		}),
		close: func() { _ = client.Close() },
	}, nil
}
