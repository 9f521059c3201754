package slidinglog_test

import (
	"cmp"
	"context"
	"fmt"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// patience is the Timeout in tests that are not about it.
const patience = 20 * time.Second

var prefixes atomic.Int64

type config = slidinglog.Config

// newStore returns a store whose Config has, where cfg has no other, a prefix of its own and patience.
func newStore(t rapid.TB, client redis.UniversalClient, cfg config) *slidinglog.Store {
	t.Helper()
	cfg.Prefix = cmp.Or(cfg.Prefix, fmt.Sprintf("sl-%d:", prefixes.Add(1)))
	cfg.Timeout = cmp.Or(cfg.Timeout, patience)
	return storeOn(t, client, cfg)
}

// storeOn returns a store with the Config as it is.
func storeOn(t rapid.TB, client redis.UniversalClient, cfg config) *slidinglog.Store {
	t.Helper()
	r, err := slidinglog.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// patient returns a client whose timeouts are patience.
func patient(t testing.TB, s *redistest.Server) *redis.Client {
	t.Helper()
	o := s.Options()
	o.ReadTimeout, o.WriteTimeout, o.DialTimeout = patience, patience, patience
	c := redis.NewClient(o)
	t.Cleanup(func() { c.Close() })
	return c
}

// shift makes every charge in the logs with the prefix older by d. For the store that is the same as
// if time had passed; the clock of a Redis cannot be set.
func shift(t testing.TB, client redis.UniversalClient, prefix string, d time.Duration) {
	t.Helper()
	ctx := context.Background()
	for _, key := range redistest.Keys(t, client, prefix) {
		for i, c := range charges(t, client, key) {
			if err := client.LSet(ctx, key, int64(2*i+1), c.at-d.Microseconds()).Err(); err != nil {
				t.Fatalf("shifting %s by %v: %v", key, d, err)
			}
		}
	}
}

// charge is a charge in a log of Redis: its time and its units.
type charge struct{ at, start, stop int64 }

// charges returns the charges in a log, as log.lua describes them.
func charges(t testing.TB, client redis.UniversalClient, key string) []charge {
	t.Helper()
	var list []int64
	if err := client.LRange(context.Background(), key, 0, -1).ScanSlice(&list); err != nil {
		t.Fatal(err)
	}
	var all []charge
	for i := 0; i+2 < len(list); i += 2 {
		all = append(all, charge{start: list[i], at: list[i+1], stop: list[i+2]})
	}
	return all
}

// stoppedClock is the clock of scripts after stopClock: the key "clock", in microseconds.
type stoppedClock struct {
	t      testing.TB
	client *redis.Client
	micros atomic.Int64
}

// stopClock changes the scripts that the client sends in two lines: they read the time from a key,
// and logs do not expire, since Redis would expire them by its own clock.
func stopClock(t testing.TB, client *redis.Client) *stoppedClock {
	t.Helper()
	replace := func(text, old, with string) string {
		if n := strings.Count(text, old); n != 1 {
			t.Fatalf("the script has %q %d times; want once", old, n)
		}
		return strings.Replace(text, old, with, 1)
	}

	log := luaText(t, "log.lua")
	stopped := replace(log, "local time = redis.call('TIME')\n", "")
	stopped = replace(stopped, "time[1] * 1000000 + time[2]", "tonumber(redis.call('GET', 'clock'))")
	stopped = replace(stopped, "math.ceil((at + log.per) / 1000)", "'9000000000000'")
	take, refund := luaText(t, "take.lua"), luaText(t, "refund.lua")
	client.AddHook(rewrite{
		log + take:   stopped + take,
		log + refund: stopped + refund,
	})

	c := &stoppedClock{t: t, client: client}
	c.set(1_800_000_000_000_000)
	return c
}

func luaText(t testing.TB, file string) string {
	t.Helper()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

func (c *stoppedClock) set(micros int64) {
	c.micros.Store(micros)
	if err := c.client.Set(context.Background(), "clock", strconv.FormatInt(micros, 10), 0).Err(); err != nil {
		c.t.Errorf("setting the clock: %v", err)
	}
}

func (c *stoppedClock) advance(d time.Duration) { c.set(c.micros.Load() + d.Microseconds()) }

// rewrite is a hook that replaces the text of scripts in EVAL. An EVALSHA always fails, since the
// server has only replaced scripts.
type rewrite map[string]string

func (r rewrite) DialHook(next redis.DialHook) redis.DialHook { return next }

func (r rewrite) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (r rewrite) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if cmd.Name() == "eval" {
			args := cmd.Args()
			args[1] = r[args[1].(string)]
		}
		return next(ctx, cmd)
	}
}

func mustTake(t testing.TB, s gcra.Store, charges ...gcra.Charge) []gcra.Charge {
	t.Helper()
	if _, err := s.Take(context.Background(), charges); err != nil {
		t.Fatalf("Take(%+v): %v", charges, err)
	}
	return charges
}

// admitted reports whether every charge that is not a shadow is allowed.
func admitted(charges []gcra.Charge) bool {
	return !slices.ContainsFunc(charges, func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow })
}

func hourly(policy string, n, cost int64) gcra.Charge {
	return gcra.Charge{Subject: "s", Policy: policy, Limit: gcra.PerHour(n), Cost: cost, Peek: cost == 0}
}

// dump returns all logs with the prefix.
func dump(t *testing.T, client *redis.Client, prefix string) string {
	t.Helper()
	var b strings.Builder
	keys := redistest.Keys(t, client, prefix)
	slices.Sort(keys)
	for _, key := range keys {
		expires, err := redistest.ExpireTime(t.Context(), client, key)
		if err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, key, client.LRange(t.Context(), key, 0, -1).Val(), expires)
	}
	return b.String()
}

// takeOrRefund calls Take or Refund. A refund is always allowed.
func takeOrRefund(ctx context.Context, s gcra.Store, charges []gcra.Charge, refund bool) (allowed bool, err error) {
	if refund {
		return true, s.Refund(ctx, charges)
	}
	return s.Take(ctx, charges)
}

// clock is a clock that moves by advance only.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }
