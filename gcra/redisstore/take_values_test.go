package redisstore_test

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// integer is a value: an integer of Redis, or a short string in the memory of the key (Valkey 9).
var integer = regexp.MustCompile(`^[1-9][0-9]{14,15}$`)

// sinceUnix is a TAT as a time since 1970.
func sinceUnix(tat int64) time.Duration {
	epoch := time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC).Sub(time.Unix(0, 0))
	return epoch + time.Duration(tat)*gcratest.Tick
}

// A bucket that limits of any speed charge in turn never expires before it is full.
// Most of these charges keep the expiry of the one before, but none that was removed. Values are plain integers.
func TestExpiryFollowsTheTAT(t *testing.T) {
	client := patientClient(t, redistest.Start(t).Addr)
	ctx := t.Context()
	r := newStore(t, client, config{})
	key := r.Prefix() + "{s}:p"

	limits := []gcra.Limit{gcra.PerDay(100_000), gcra.PerSecond(1000).WithBurst(100_000), gcra.PerMinute(100), gcra.PerDay(1000)}
	expiries := make(map[time.Duration]bool)
	for i := range 200 {
		if i == 100 {
			client.Persist(ctx, key)
			limits[0] = gcra.PerDay(1000) // its charges reach the next cell
		}
		c := gcra.Charge{Subject: "s", Policy: "p", Limit: limits[i%len(limits)], Cost: int64(i % 3), Peek: i%3 == 0}
		if _, err := gcratest.TakeOrRefund(ctx, r, []gcra.Charge{c}, i%10 == 9); err != nil {
			t.Fatal(err)
		}

		value, err := client.Get(ctx, key).Result()
		if err == redis.Nil {
			continue // a peek at a full bucket
		} else if err != nil || !integer.MatchString(value) {
			t.Fatalf("call %d: got %q, %v; want an integer", i, value, err)
		}
		tat, _ := strconv.ParseInt(value, 10, 64)

		expires, err := redistest.ExpireTime(ctx, client, key)
		if i >= 100 && expires < 0 && i < 110 {
			continue // until the TAT reaches the next 10 seconds
		}
		if late := expires - sinceUnix(tat); err != nil || late < 0 || late > 10*time.Second {
			t.Fatalf("call %d: expires %v after its bucket is full, %v; want 0 to 10s", i, late, err)
		}
		expiries[expires] = true
	}

	if n := len(expiries); n < 10 || n > 150 {
		t.Errorf("got %d different expiries of 200 calls; want more than 10, and most of them kept", n)
	}
}

// A denial, a peek and a charge above the burst change neither the value nor the
// expiry of any key of the admission.
func TestDenialWritesNothing(t *testing.T) {
	client := patientClient(t, redistest.Start(t).Addr)
	r := settled(t, newStore(t, client, config{})) // before that, an admission is divided, and what was taken is refunded
	limit := gcra.PerHour(2)
	c := func(subject string, cost int64) gcra.Charge {
		return gcra.Charge{Subject: subject, Policy: "p", Limit: limit, Cost: cost, Peek: cost == 0}
	}
	gcratest.MustTake(t, r, c("empty", 2))
	gcratest.MustTake(t, r, c("half", 1))

	state := func() string {
		var b strings.Builder
		for _, key := range []string{"empty", "half", "new"} {
			key = r.Prefix() + "{" + key + "}:p"
			expires, _ := redistest.ExpireTime(t.Context(), client, key) // 0 if the key does not exist
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
		"denied":                              {c("empty", 1)},
		"denied, others have room":            {c("half", 1), c("empty", 1), c("new", 1)},
		"denied first":                        {c("empty", 1), c("half", 1), c("new", 1)},
		"never":                               {c("new", 3)},
		"never in a group":                    {c("half", 1), c("new", 3)},
		"peek":                                {c("half", 0)},
		"peeks":                               {c("half", 0), c("empty", 0), c("new", 0)},
		"the same bucket twice, room for one": {c("half", 1), c("half", 1)},
		"shadow denied":                       {{Subject: "empty", Policy: "p", Limit: limit, Cost: 1, Shadow: true}},
		"shadow beside a denial":              {{Subject: "half", Policy: "p", Limit: limit, Cost: 1, Shadow: true}, c("empty", 1)},
		"queue is full":                       {{Subject: "empty", Policy: "p", Limit: limit, Cost: 1, MaxDelay: time.Second, MaxWait: time.Second}},
		"denied for its cost":                 {c("half", 2)},
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

var damagedValues = []any{
	"", " ", "abc", "nan", "-nan", "inf", "-inf", "1e300", "-1e300", "0", "-1", "-0", "1", "1.5", "0x10", "0xffffffffffffff", " 12 ", "12abc",
	"9007199254740993", "9223372036854775807", "-9223372036854775808", "99999999999999999999999", "100000000000000000", "1e15", "\x00", "\xff\xff",
	[]string{"a list"}, map[string]string{"a": "hash"},
}

// damage sets a key to a string, a list or a hash.
func damage(t *testing.T, client *redis.Client, key string, value any) {
	t.Helper()
	var err error
	switch v := value.(type) {
	case string:
		err = client.Set(t.Context(), key, v, 0).Err()
	case []string:
		err = client.RPush(t.Context(), key, v[0]).Err()
	case map[string]string:
		err = client.HSet(t.Context(), key, v).Err()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// A damaged value, or one of another clock, denies for no longer than an empty bucket
// takes to refill. After a charge it is a plain integer with a TTL.
func TestDamagedValues(t *testing.T) {
	limit := gcra.PerHour(5)
	for _, tt := range anyAndEmbedded {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			ctx := t.Context()
			for _, value := range damagedValues {
				r := newStore(t, client, config{})
				key := r.Prefix() + "{s}:p"
				damage(t, client, key, value)

				c := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1}
				for call := range 3 { // the first two may be denied for the first unit
					got := gcratest.MustTake(t, r, c)[0].Result
					if got.RetryAfter > time.Hour/5 || got.ResetAfter > time.Hour || got.Remaining < 0 || got.Never {
						t.Fatalf("%q, call %d: got %+v; want RetryAfter at most the time of a unit", value, call, got)
					}
					if call == 1 && !got.Allowed {
						t.Fatalf("%q: got %+v after RetryAfter; want allowed", value, got)
					}
					shift(t, client, r.Prefix(), got.RetryAfter)
				}

				if text, ttl := client.Get(ctx, key).Val(), client.PTTL(ctx, key).Val(); !integer.MatchString(text) || ttl <= 0 {
					t.Errorf("%q: got %q with TTL %v after charges; want a plain integer with a TTL", value, text, ttl)
				}
			}
		})
	}
}
