package redisstore_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// shift moves the TAT of every key with the prefix back by d. To the store that
// is as if time had gone on by d, which no command can do to a Redis.
func shift(t testing.TB, client redis.UniversalClient, prefix string, d time.Duration) {
	t.Helper()
	ctx := context.Background()
	for _, key := range redistest.Keys(t, client, prefix) {
		tat, err := client.Get(ctx, key).Int64()
		if err == redis.Nil {
			continue // has just expired
		}
		if err == nil {
			err = client.SetArgs(ctx, key, tat-int64(d/tick), redis.SetArgs{Mode: "XX", KeepTTL: true}).Err()
		}
		if err != nil && err != redis.Nil {
			t.Fatalf("shifting %s by %v: %v", key, d, err)
		}
	}
}

// stoppedClock is the time of a Redis as its scripts see it: that of the key
// "clock", in ticks.
type stoppedClock struct {
	t      testing.TB
	client *redis.Client
	ticks  atomic.Int64
}

// stopClock makes the client send, in the place of take.lua, a script of the
// same text but for the two lines that read the time, and for the TTL, which
// must not run out on a clock that does not move.
func stopClock(t testing.TB, client *redis.Client) *stoppedClock {
	t.Helper()
	text := takeLua(t)
	variant := text
	for _, r := range [][2]string{
		{"local time = redis.call('TIME')\n", ""},
		{"local now = (time[1] - 1735689600) * 10000000 + time[2] * 10\n", "local now = tonumber(redis.call('GET', 'clock'))\n"},
		{"math.max(ceil(to / 10000), 1)", "1e10"},
		{"ceil(to / 10000)", "1e10"},
	} {
		if n := strings.Count(variant, r[0]); n != 1 {
			t.Fatalf("take.lua has %q %d times; want once", r[0], n)
		}
		variant = strings.Replace(variant, r[0], r[1], 1)
	}
	client.AddHook(replaceScript{strings.NewReplacer(text, variant, shaOf(text), shaOf(variant))})
	c := &stoppedClock{t: t, client: client}
	if err := c.set(5e14); err != nil {
		t.Fatal(err)
	}
	return c
}

// set puts the clock to ticks since the epoch of the TATs.
func (c *stoppedClock) set(ticks int64) error {
	c.ticks.Store(ticks)
	return c.client.Set(context.Background(), "clock", ticks, 0).Err()
}

func (c *stoppedClock) advance(d time.Duration) {
	if err := c.set(c.ticks.Load() + int64(d/tick)); err != nil {
		c.t.Errorf("setting the clock: %v", err)
	}
}

// replaceScript is a hook that sends other scripts than it is told to.
type replaceScript struct{ *strings.Replacer }

func (r replaceScript) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r replaceScript) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		r.rewrite(cmd)
		return next(ctx, cmd)
	}
}

func (r replaceScript) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return func(ctx context.Context, cmds []redis.Cmder) error {
		for _, cmd := range cmds {
			r.rewrite(cmd)
		}
		return next(ctx, cmds)
	}
}

func (r replaceScript) rewrite(cmd redis.Cmder) {
	switch args := cmd.Args(); cmd.Name() {
	case "eval", "evalsha":
		args[1] = r.Replace(args[1].(string))
	case "script":
		args[2] = r.Replace(args[2].(string))
	}
}
