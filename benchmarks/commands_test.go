package main

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"
	"github.com/redis/rueidis"
)

// The names of what no target names.
const (
	decidingScript = "script_that_decides"
	goRedisSet     = "go-redis_SET"
	goRedisSetAP   = "go-redis_SET+AutoPipeline"
	goRedisPing    = "go-redis_PING"
)

// plainCommands show what a check costs at least. All but decidingScript limit nothing.
var plainCommands = []contestant{
	{floorScript, command(func(ctx context.Context, c redis.Cmdable, subject string) error {
		return floor.Run(ctx, c, []string{subject}).Err()
	})},
	{decidingScript, newDecidingScript},
	{goRedisSet, command(set)},
	{goRedisPing, command(func(ctx context.Context, c redis.Cmdable, _ string) error { return c.Ping(ctx).Err() })},
	{goRedisSetAP, newGoRedisSetAP},
	{rueidisSet, newRueidisSet},
}

// isCommand reports whether a contestant limits nothing.
func isCommand(name string) bool {
	return slices.Contains([]string{rueidisSet, goRedisSet, goRedisSetAP, goRedisPing, floorScript, clockAndLock, fieldsOnly, bare, bareMux}, name)
}

// floor is the shortest script that does what any limiter with the clock of Redis
// has to do. It decides nothing, and its key does not expire.
var floor = redis.NewScript("local c,k=redis.call,KEYS[1]c('TIME')c('GET',k)c('SET',k,'" + value + "')return 1")

// value is as long as a theoretical arrival time.
const value = "1700000000000000"

// deciding is GCRA in the fewest bytes, in microseconds and for one limit. It has no second
// policy, no delay and no guard against damaged values. Its arguments are the limit, and
// its reply is what response headers need: how far the theoretical arrival time was ahead,
// or less than 0.
var deciding = redis.NewScript("local c,k=redis.call,KEYS[1]local t=c('TIME')local n=t[1]*1e6+t[2]" +
	"local a=math.max(c('GET',k)or n,n)-n local b=a+ARGV[1]if b>ARGV[2]+0 then return -a-1 end " +
	"c('SET',k,n+b,'PX',math.ceil(b/1e3))return a")

// newDecidingScript is the least that one caller can wait for a decision by the clock of
// Redis, on the same client as ours and with a timeout like ours.
func newDecidingScript(d deployment, l limit) (func() check, error) {
	return shared(decide(d.dial(), l)), nil
}

func decide(client redis.Scripter, l limit) check {
	emission := l.emission().Microseconds()
	return func(subject string) (bool, error) {
		ctx, cancel := context.WithTimeout(context.Background(), patience)
		defer cancel()
		ahead, err := deciding.Run(ctx, client, []string{subject}, emission, l.burst*emission).Int64()
		return ahead >= 0, err
	}
}

func set(ctx context.Context, c redis.Cmdable, subject string) error {
	return c.Set(ctx, subject, value, 0).Err()
}

// commandCaller makes callers of a command.
func commandCaller(c redis.Cmdable, do func(context.Context, redis.Cmdable, string) error) func() check {
	return shared(func(subject string) (bool, error) {
		err := do(context.Background(), c, subject)
		return err == nil, err
	})
}

func command(do func(context.Context, redis.Cmdable, string) error) builder {
	return func(d deployment, _ limit) (func() check, error) {
		return commandCaller(d.dial(), do), nil
	}
}

func newGoRedisSetAP(d deployment, _ limit) (func() check, error) {
	pipeline, err := d.dial().AutoPipeline()
	return commandCaller(pipeline, set), err
}

func newRueidisSet(d deployment, _ limit) (func() check, error) {
	return onRueidis(d, func(ctx context.Context, client rueidis.Client, subject string) (bool, error) {
		err := client.Do(ctx, client.B().Set().Key(subject).Value(value).Build()).Error()
		return err == nil, err
	})
}
