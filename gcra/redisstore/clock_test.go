package redisstore_test

import (
	"context"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// shift moves the TAT of every key with the prefix back by d. For the store that
// is the same as if d had passed; the clock of a Redis cannot be set.
func shift(t testing.TB, client redis.UniversalClient, prefix string, d time.Duration) {
	t.Helper()
	ctx := context.Background()
	for _, key := range redistest.Keys(t, client, prefix) {
		if strings.HasPrefix(key, prefix+"{~") {
			continue // no subject begins so: a key by which the store tests the server
		}
		tat, err := client.Get(ctx, key).Int64()
		if err == redis.Nil {
			continue // has just expired
		}
		if err == nil {
			err = client.SetArgs(ctx, key, tat-int64(d/gcratest.Tick), redis.SetArgs{Mode: "XX", KeepTTL: true}).Err()
		}

		if err != nil && err != redis.Nil {
			t.Fatalf("shifting %s by %v: %v", key, d, err)
		}
	}
}

// stoppedClock is the clock of take.lua after stopClock: the key "clock", in ticks.
type stoppedClock struct {
	t      testing.TB
	client *redis.Client
	ticks  atomic.Int64
}

// stopClock changes the take.lua that the client sends: it reads the time from a
// key, and values do not expire, since Redis would expire them by its own clock.
// Changes are other texts to replace.
func stopClock(t testing.TB, client *redis.Client, changes ...[2]string) *stoppedClock {
	t.Helper()
	text := takeLua(t)

	stopped := text
	for _, r := range append(changes,
		[2]string{"local time = redis.call('TIME')\n", ""},
		[2]string{"local now = (time[1] - 1735689600) * 10000000 + time[2] * 10\n", "local now = tonumber(redis.call('GET', 'clock'))\n"},
		[2]string{"1735689600000 + (new + cell) / 10000", "1e14"},
	) {
		if n := strings.Count(stopped, r[0]); n != 1 {
			t.Fatalf("take.lua has %q %d times; want once", r[0], n)
		}
		stopped = strings.Replace(stopped, r[0], r[1], 1)
	}

	client.AddHook(replaceScript(text, stopped))
	c := &stoppedClock{t: t, client: client}
	if err := c.set(5e14); err != nil {
		t.Fatal(err)
	}
	return c
}

// set sets the clock to ticks since the epoch of the TATs.
func (c *stoppedClock) set(ticks int64) error {
	c.ticks.Store(ticks)
	return c.client.Set(context.Background(), "clock", ticks, 0).Err()
}

func (c *stoppedClock) now() time.Time { return tat.Time(c.ticks.Load()) }

func (c *stoppedClock) advance(d time.Duration) {
	if err := c.set(c.ticks.Load() + int64(d/gcratest.Tick)); err != nil {
		c.t.Errorf("setting the clock: %v", err)
	}
}

// replaceScript sends one script in the place of another.
func replaceScript(text, with string) scriptHook {
	replacer := strings.NewReplacer(text, with, shaOf(text), shaOf(with))
	return func(cmd redis.Cmder) error {
		i := 1
		if cmd.Name() == "script" {
			i = 2
		}
		args := cmd.Args()
		args[i] = replacer.Replace(args[i].(string))
		return nil
	}
}
