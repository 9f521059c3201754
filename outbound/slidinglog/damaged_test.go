package slidinglog_test

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A damaged log heals with the next charge or refund: no error, at most the limit more, and an expiry.
// A peek leaves it as it is, and no other key is affected. TestRedisArbitraryLists draws lists.
func TestDamagedLogHeals(t *testing.T) {
	client := patient(t, redistest.Start(t))
	ctx := t.Context()
	r := newStore(t, client, config{})
	key := r.Prefix() + "{s}:p"
	now := client.Time(ctx).Val().UnixMicro()
	list := func(elements ...any) func() error {
		return func() error { return client.RPush(ctx, key, elements...).Err() }
	}

	for name, damage := range map[string]func() error{
		"an integer":            func() error { return client.Set(ctx, key, 1, 0).Err() },
		"a text":                func() error { return client.Set(ctx, key, "x", 0).Err() },
		"a hash":                func() error { return client.HSet(ctx, key, "a", "b").Err() },
		"a set":                 func() error { return client.SAdd(ctx, key, "a").Err() },
		"a sorted set":          func() error { return client.ZAdd(ctx, key, redis.Z{Score: 9e15, Member: "1"}).Err() },
		"nan":                   list(0, "nan", "nan"),
		"numbers that decrease": list(7, now-2, 9, now-1, 2),
		"times that decrease":   list(0, now+2_000_000_000, 1, now-2, 2),
		"numbers too large":     list(1<<53-1, now, 1<<53),   // to count in
		"numbers too small":     list(-1<<54-4, now, -1<<54), // the same
		"fractions":             list("0.5", fmt.Sprint(now, ".5"), "1.25"),
		"bytes":                 list("\x00", "\xff\xfe", "\n"),
		"a long text":           list(strings.Repeat("9", 5000), strings.Repeat("x", 5000), ""),
		"a list of words, long": func() error { return client.RPush(ctx, key, strings.Fields(strings.Repeat("word ", 100_001))).Err() },
	} {
		for _, refund := range []bool{false, true} {
			if err := client.Del(ctx, key).Err(); err != nil {
				t.Fatal(err)
			}
			mustTake(t, r, hourly("q", 5, 1))
			if err := damage(); err != nil {
				t.Fatal(err)
			}

			before := client.Dump(ctx, key).Val()
			mustTake(t, r, hourly("p", 5, 0))
			if after := client.Dump(ctx, key).Val(); after != before {
				t.Errorf("%s: a peek has changed it", name)
			}

			if refund {
				if err := r.Refund(ctx, []gcra.Charge{hourly("p", 5, 1)}); err != nil {
					t.Errorf("%s: Refund: %v", name, err)
				}
			}

			passed := 0
			for range 12 {
				got := mustTake(t, r, hourly("p", 5, 1))
				if admitted(got) {
					passed++
				}
				if wait := got[0].Result.RetryAfter; wait > time.Hour {
					t.Errorf("%s: a denial for %v at 5 an hour", name, wait)
				}
			}

			if passed > 5 {
				t.Errorf("%s: %d of 12 passed at 5 an hour", name, passed)
			}
			if ttl := client.PTTL(ctx, key).Val(); ttl <= 0 || ttl > time.Hour+time.Second {
				t.Errorf("%s: the log expires in %v; want within an hour", name, ttl)
			}

			if got := mustTake(t, r, hourly("q", 5, 0))[0].Result.Remaining; got > 4 {
				t.Errorf("%s: another key has %d remaining; want what was left", name, got)
			}
			client.Del(ctx, r.Prefix()+"{s}:q")
		}
	}
}

// A log without an expiry that is full gets one from the first denial.
func TestFullLogWithoutExpiry(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(t, client, config{})
	for range 5 {
		mustTake(t, r, hourly("p", 5, 1))
	}
	key := r.Prefix() + "{s}:p"
	if err := client.Persist(t.Context(), key).Err(); err != nil {
		t.Fatal(err)
	}
	if admitted(mustTake(t, r, hourly("p", 5, 1))) {
		t.Error("the sixth of 5 an hour passed")
	}
	if ttl := client.PTTL(t.Context(), key).Val(); ttl <= 0 || ttl > time.Hour+time.Second {
		t.Errorf("the log expires in %v; want within an hour", ttl)
	}
}

// Whatever a list holds, charges on it pass at most as often as the limit allows, once more after a
// repair. None is an error, the list always has an expiry, and later charges pass again.
func TestRedisArbitraryLists(t *testing.T) {
	t.Parallel()
	client := patient(t, redistest.Start(t))
	stopped := stopClock(t, client)
	ctx := t.Context()
	rapid.Check(t, func(rt *rapid.T) {
		count := rapid.Int64Range(1, 5).Draw(rt, "count")
		limit := gcra.Limit{Count: count, Per: time.Second}
		maxDelay := rapid.SampledFrom([]time.Duration{0, 500 * time.Millisecond, 3 * time.Second}).Draw(rt, "maxDelay")

		now := stopped.micros.Load()
		element := rapid.OneOf(
			rapid.Map(rapid.Int64Range(0, 12), func(n int64) string { return strconv.FormatInt(n, 10) }),
			rapid.Map(rapid.Int64Range(-2_000_000, 4_000_000), func(n int64) string { return strconv.FormatInt(now+n, 10) }),
			rapid.SampledFrom([]string{"nan", "inf", "-1", "", "x", "1e9", "0x10", "1.5", "9007199254740993"}),
		)

		var elements []string
		switch rapid.IntRange(0, 2).Draw(rt, "kind") {
		case 0:
			elements = rapid.SliceOfN(element, 1, 25).Draw(rt, "elements")
		default: // a log, in which some elements are damaged
			at, units := now-2_000_000, int64(0)
			elements = []string{"0"}
			for range rapid.IntRange(1, 12).Draw(rt, "charges") {
				at += rapid.Int64Range(0, 400_000).Draw(rt, "later")
				units += rapid.Int64Range(1, 3).Draw(rt, "units")
				elements = append(elements, strconv.FormatInt(at, 10), strconv.FormatInt(units, 10))
			}

			for range rapid.IntRange(0, 4).Draw(rt, "damages") {
				i := rapid.IntRange(0, len(elements)-1).Draw(rt, "where")
				elements[i] = element.Draw(rt, "element")
			}
		}

		r := newStore(t, client, config{})
		key := r.Prefix() + "{%}:p" // of the empty subject
		args := []any{"rpush", key}
		for _, e := range elements {
			args = append(args, e)
		}
		if err := client.Do(ctx, args...).Err(); err != nil {
			rt.Fatal(err)
		}

		var passed []int64 // when, in microseconds
		call := func() bool {
			charge := gcra.Charge{Policy: "p", Limit: limit, Cost: 1, MaxDelay: maxDelay, MaxWait: maxDelay}
			result, err := gcra.Take(ctx, r, charge)
			if err != nil {
				rt.Fatalf("%q: %v", elements, err)
			}

			if ttl := client.PTTL(ctx, key).Val(); ttl == -1 {
				rt.Fatalf("%q: no expiry", elements)
			}
			if result.Allowed {
				passed = append(passed, stopped.micros.Load()+result.Delay.Microseconds())
			}
			return result.Allowed
		}

		for range rapid.IntRange(5, 40).Draw(rt, "calls") {
			call()
			stopped.advance(time.Duration(rapid.Int64Range(0, 300_000).Draw(rt, "pause")) * time.Microsecond)
		}

		for _, from := range passed {
			n := int64(0)
			for _, at := range passed {
				if at >= from && at < from+limit.Per.Microseconds() {
					n++
				}
			}
			if n > 2*count {
				rt.Fatalf("%q: %d passed in a second at %v; want at most %d", elements, n, limit, 2*count)
			}
		}

		stopped.advance(2 * (limit.Per + maxDelay))
		if !call() {
			rt.Fatalf("%q: a charge is denied after two windows without any", elements)
		}
	})
}

// After the clock of Redis went back, the first charge on a long log is as fast as any.
func TestClockGoesBackBehindALongLog(t *testing.T) {
	server := redistest.Start(t)
	client := patient(t, server)
	ctx := t.Context()
	r := newStore(t, client, config{})
	const charges, ahead = 400_000, 10 * time.Minute
	limit := gcra.Limit{Count: charges, Per: time.Hour}
	key := r.Prefix() + "{s}:p"

	at := client.Time(ctx).Val().Add(ahead).UnixMicro()
	elements := []any{0}
	for i := range int64(charges) {
		elements = append(elements, at+i, i+1)
		if len(elements) > 100_000 || i == charges-1 {
			if err := client.RPush(ctx, key, elements...).Err(); err != nil {
				t.Fatal(err)
			}
			elements = elements[:0]
		}
	}

	if err := client.ConfigSet(ctx, "slowlog-log-slower-than", "0").Err(); err != nil {
		t.Fatal(err)
	}

	got := mustTake(t, r, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1})[0].Result
	if got.Allowed || got.RetryAfter > time.Hour || got.RetryAfter < time.Hour-time.Minute {
		t.Errorf("a log that is full and ahead: got %+v; want a denial for an hour, the length of the window", got)
	}
	if ttl := client.PTTL(ctx, key).Val(); ttl <= 0 || ttl > time.Hour+time.Second {
		t.Errorf("the log expires in %v; want within an hour", ttl)
	}

	slow, err := client.SlowLogGet(ctx, 128).Result()
	if err != nil {
		t.Fatal(err)
	}

	scripts := 0
	for _, entry := range slow {
		if !strings.HasPrefix(strings.ToLower(entry.Args[0]), "eval") {
			continue
		}
		scripts++
		if entry.Duration > 50*time.Millisecond {
			t.Errorf("a script took Redis %v; want at most 50ms", entry.Duration)
		}
		t.Logf("the script took %v", entry.Duration)
	}

	if scripts == 0 {
		t.Error("the slow log has no script")
	}

	// The units are still there: half of them given back leave room for as many.
	if err := r.Refund(ctx, []gcra.Charge{{Subject: "s", Policy: "p", Limit: limit, Cost: charges / 2}}); err != nil {
		t.Fatal(err)
	}
	if left := mustTake(t, r, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1})[0].Result.Remaining; left != charges/2-1 {
		t.Errorf("got %d remaining; want %d", left, charges/2-1)
	}
}
