package redisstore_test

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// A value is a plain integer, which the server keeps as one (Redis) or as a short
// string within its key's own memory (Valkey 9), and lives until its bucket is
// full, a millisecond longer at most.
func TestRedisValues(t *testing.T) {
	client := unhurried(t, redistest.Start(t).Addr)
	ctx := t.Context()
	integer := regexp.MustCompile(`^[1-9][0-9]{14,15}$`)
	for _, limit := range []gcra.Limit{
		gcra.PerSecond(1), gcra.PerSecond(10_000), gcra.PerSecond(1_000_000), gcra.PerSecond(7), gcra.PerMinute(1),
		gcra.PerDay(1), {Count: 1, Per: 366 * 24 * time.Hour}, {Count: 3, Per: 3 * time.Second / 7},
	} {
		for i, cost := range []int64{1, gcratest.Burst(limit), 1, gcratest.Burst(limit)} {
			r := newStore(client)
			charges := []gcra.Charge{{Subject: "s", Policy: "p", Limit: limit, Cost: cost, MaxDelay: time.Second}}
			if i >= 2 { // not alone
				charges = append(charges, gcra.Charge{Subject: "s", Policy: "q", Limit: limit, Cost: cost})
			}
			start := time.Now()
			gcratest.MustTake(t, r, charges...)
			spent := time.Since(start)
			key := r.Prefix + "{s}:p"
			pipe := client.TxPipeline()
			value, encoding := pipe.Get(ctx, key), pipe.ObjectEncoding(ctx, key)
			_, err := pipe.Exec(ctx)
			expires, expiresErr := redistest.ExpireTime(ctx, client, key)
			if err := cmp.Or(err, expiresErr); errors.Is(err, redis.Nil) && cost*int64(limit.Per)/limit.Count < int64(time.Minute) {
				continue // it was full again before we looked
			} else if err != nil {
				t.Fatalf("%v, cost %d: %v", limit, cost, err)
			}
			if e := encoding.Val(); !integer.MatchString(value.Val()) || e != "int" && e != "embstr" {
				t.Errorf("%v, cost %d: got %q as %s; want digits as int or embstr", limit, cost, value.Val(), e)
			}
			tat, err := value.Int64()
			if err != nil {
				t.Fatal(err)
			}
			// A key is there until the millisecond that its expiry names is over.
			zero := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)
			lives := time.UnixMilli(expires.Milliseconds() + 1).Sub(zero)
			until := time.Duration(tat) * tick
			if lives < until || lives > until+2*time.Millisecond+spent {
				t.Errorf("%v, cost %d: lives until %v; want until %v, when its bucket is full", limit, cost, lives, until)
			}
		}
	}
}

// Whatever is done, no key is without a TTL.
func TestRedisKeysExpire(t *testing.T) {
	client := anyRedis(t)
	r := newStore(client)
	limits := []gcra.Limit{gcra.PerSecond(100_000), gcra.PerSecond(3), gcra.PerDay(2)}
	for i := range 300 {
		charges := []gcra.Charge{
			{Subject: fmt.Sprint(i % 7), Policy: "a", Limit: limits[i%3], Cost: int64(i % 3)},
			{Subject: fmt.Sprint(i % 5), Policy: "b", Limit: limits[(i+1)%3], Cost: 1, Shadow: i%2 == 0},
		}
		if _, err := gcratest.TakeOrRefund(t.Context(), r, charges, i%11 == 0); err != nil {
			t.Fatal(err)
		}
	}
	keys := redistest.Keys(t, client, r.Prefix)
	if len(keys) == 0 {
		t.Error("got no keys")
	}
	for _, key := range keys {
		if ttl := client.PTTL(t.Context(), key).Val(); ttl == -1 {
			t.Errorf("%s has no TTL", key)
		}
	}
}

// A refusal, a peek and a charge that can never pass write nothing: neither
// values nor their expiry, of no key of the admission.
func TestRedisRefusalWritesNothing(t *testing.T) {
	client := unhurried(t, redistest.Start(t).Addr)
	r := newStore(client)
	limit := gcra.PerHour(2)
	c := func(subject string, cost int64) gcra.Charge {
		return gcra.Charge{Subject: subject, Policy: "p", Limit: limit, Cost: cost}
	}
	gcratest.MustTake(t, r, c("empty", 2))
	gcratest.MustTake(t, r, c("half", 1))
	state := func() string {
		var b strings.Builder
		for _, key := range []string{"empty", "half", "new"} {
			key = r.Prefix + "{" + key + "}:p"
			expires, _ := redistest.ExpireTime(t.Context(), client, key) // 0 of the key that is not there
			fmt.Fprintf(&b, "%q %v\n", client.Dump(t.Context(), key).Val(), expires)
		}
		for line := range strings.Lines(client.Info(t.Context(), "persistence").Val()) {
			if strings.HasPrefix(line, "rdb_changes_since_last_save") {
				b.WriteString(line)
			}
		}
		return b.String()
	}
	before := state()
	for name, charges := range map[string][]gcra.Charge{
		"refused":                     {c("empty", 1)},
		"refused, others have room":   {c("half", 1), c("empty", 1), c("new", 1)},
		"refused first":               {c("empty", 1), c("half", 1), c("new", 1)},
		"never":                       {c("new", 3)},
		"never in a group":            {c("half", 1), c("new", 3)},
		"peek":                        {c("half", 0)},
		"peeks":                       {c("half", 0), c("empty", 0), c("new", 0)},
		"the same bucket, once fits":  {c("half", 1), c("half", 1)},
		"shadow refused":              {{Subject: "empty", Policy: "p", Limit: limit, Cost: 1, Shadow: true}},
		"shadow beside a refusal":     {{Subject: "half", Policy: "p", Limit: limit, Cost: 1, Shadow: true}, c("empty", 1)},
		"queue is full":               {{Subject: "empty", Policy: "p", Limit: limit, Cost: 1, MaxDelay: time.Second}},
		"refused by a larger request": {c("half", 2)},
	} {
		gcratest.MustTake(t, r, charges...)
		if after := state(); after != before {
			t.Errorf("%s: got\n%s; want\n%s", name, after, before)
		}
	}
	if err := r.Refund(t.Context(), []gcra.Charge{c("new", 1)}); err != nil {
		t.Error(err)
	}
	if after := state(); after != before {
		t.Errorf("refund of a full bucket: got\n%s; want\n%s", after, before)
	}
}

// Values that nobody but a bug, another clock or another program can have
// written refuse for no longer than an empty bucket takes to refill, and are
// plain integers with a TTL once a charge has seen them.
func TestRedisHealsPoison(t *testing.T) {
	limit := gcra.PerHour(5)
	for _, tt := range []struct {
		name string
		open func(testing.TB) *redis.Client
	}{{"Any", anyRedis}, {"Embedded", embedded}} {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			ctx := t.Context()
			for _, poison := range []any{
				"", " ", "abc", "nan", "-nan", "inf", "-inf", "1e300", "-1e300", "0", "-1", "-0", "1", "1.5", "0x10", "0xffffffffffffff", " 12 ", "12abc",
				"9007199254740993", "9223372036854775807", "-9223372036854775808", "99999999999999999999999", "100000000000000000", "1e15", "\x00", "\xff\xff",
				[]string{"a list"}, map[string]string{"a": "hash"},
			} {
				r := newStore(client)
				key := r.Prefix + "{s}:p"
				var err error
				switch v := poison.(type) {
				case string:
					err = client.Set(ctx, key, v, 0).Err()
				case []string:
					err = client.RPush(ctx, key, v[0]).Err()
				case map[string]string:
					err = client.HSet(ctx, key, v).Err()
				}
				if err != nil {
					t.Fatal(err)
				}
				c := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1}
				for call := range 3 { // of which two may have to wait for the first unit
					got := gcratest.MustTake(t, r, c)[0].Result
					if got.RetryAfter > time.Hour/5 || got.ResetAfter > time.Hour || got.Remaining < 0 || got.Never {
						t.Fatalf("%q, call %d: got %+v; want at most a unit's time to wait", poison, call, got)
					}
					if call == 1 && !got.Allowed {
						t.Fatalf("%q: got %+v after the wait; want allowed", poison, got)
					}
					shift(t, client, r.Prefix, got.RetryAfter)
				}
				if k, _ := onlyKey(t, client, r.Prefix); client.PTTL(ctx, k).Val() <= 0 {
					t.Errorf("%q: got no TTL", poison)
				}
			}
		})
	}
}

// A damaged bucket fails nobody who rides with it.
func TestDamagedBucketFailsNoNeighbour(t *testing.T) {
	client := redistest.Any(t)
	r := newStore(client)
	ctx := context.Background()
	for i, value := range []string{"abc", "nan", "inf", "-1", "1e300", ""} {
		if err := client.Set(ctx, r.Prefix+fmt.Sprintf("{%d}:p", i), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.LPush(ctx, r.Prefix+"{6}:p", "a", "list").Err(); err != nil {
		t.Fatal(err)
	}
	redistest.Together(200, func(i int) {
		res, err := gcra.Take(ctx, r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: gcra.PerHour(20), Cost: 1})
		if err != nil || i > 6 && !res.Allowed {
			t.Errorf("caller %d: %+v, %v", i, res, err)
		}
	})
}
