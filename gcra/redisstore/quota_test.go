package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

const (
	aDay  = 24 * time.Hour
	aYear = 365 * aDay
)

// hourlyQuota charges one of n units of a calendar hour.
func hourlyQuota(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.Quota(n, gcra.Hourly), Cost: 1}
}

// The clocks of processes are wrong by seconds or years, in either direction, and jump:
// the clock of Redis alone decides which period is current. Where a store knows nothing of
// it yet, it asks twice.
func TestQuotaByTheClockOfRedis(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	prefix := newStore(client).Prefix
	skews := []time.Duration{
		0, time.Second, -time.Second, 29 * time.Minute, -29 * time.Minute, time.Hour, -time.Hour, 2*time.Hour + time.Second, -2*time.Hour - time.Second,
		aDay, -aDay, 40 * aDay, -40 * aDay, 10 * aYear, -10 * aYear, 250 * aYear,
	}
	const quota = 12 // of four stores
	used := int64(0)
	period := func() time.Time { return server.now().Truncate(time.Hour).Add(time.Hour) }
	for _, skew := range skews {
		offset := skew
		r := newStore(client)
		r.Prefix = prefix
		r.SetClock(func() time.Time { return server.now().Add(offset) })
		take := func(allowed bool) {
			t.Helper()
			c := gcratest.MustTake(t, r, hourlyQuota("s", quota))[0]
			if allowed {
				used++
			}
			want := gcra.Result{Allowed: allowed, Remaining: quota - used, ResetAfter: period().Sub(server.now())}
			if !allowed {
				want.RetryAfter = want.ResetAfter
			}
			if c.Result != want || !c.Period.Equal(period()) {
				t.Fatalf("off by %v, %d used: got %+v until %v; want %+v until %v", offset, used-1, c.Result, c.Period, want, period())
			}
		}
		take(true)
		take(true)
		calls := r.Stats().Batches
		if calls > 3 || calls < 2 {
			t.Errorf("off by %v: got %d calls for 2 charges; want one each, and one more at first if the clock is off by more than a period", offset, calls)
		}
		offset -= 3 * aDay // jumps
		take(true)
		if used == quota {
			take(false)
			server.advance(period().Sub(server.now()) - gcratest.Tick)
			take(false)
			server.advance(gcratest.Tick)
			used = 0
		}
	}
}

// Redis admits what the calendar on the wall says, to the tick, by its own clock, whatever
// the clock of the process says.
func TestQuotaIsTheCalendars(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		if err := server.set(rapid.Int64Range(0, 20*365*24).Draw(t, "start") * int64(time.Hour/gcratest.Tick)); err != nil {
			t.Fatal(err)
		}
		skew := time.Duration(rapid.SampledFrom([]int{0, 0, 1, -1, 40, -400}).Draw(t, "days off")) * aDay
		r := newStore(client)
		r.NoDenialCache, r.DenialTTL = rapid.Bool().Draw(t, "no denial cache"), aYear
		r.SetClock(func() time.Time { return server.now().Add(skew) })
		gcratest.CheckQuotas(t, r, server.now, server.advance, time.Microsecond)
	})
}

// The clock of Redis goes back by less than a period, and forward again, also behind the
// backs of several processes whose own clocks are wrong. No period has more than its quota,
// also with settlements, refunds and the denial cache, and none begins before its time.
func TestQuotaWhileTheClockOfRedisGoesBack(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		const n, debt = 5, 3
		calendar := rapid.SampledFrom([]gcra.Calendar{gcra.Hourly, gcra.Daily, gcra.Monthly.From(15)}).Draw(t, "calendar")
		if err := server.set(rapid.Int64Range(24, 400*24).Draw(t, "start") * int64(time.Hour/gcratest.Tick)); err != nil {
			t.Fatal(err)
		}
		prefix := newStore(client).Prefix
		var stores []*redisstore.Store
		for range 2 {
			r := newStore(client)
			r.Prefix, r.NoDenialCache = prefix, rapid.Bool().Draw(t, "no denial cache")
			skew := time.Duration(rapid.SampledFrom([]int{0, 1, -40}).Draw(t, "days off")) * aDay
			r.SetClock(func() time.Time { return server.now().Add(skew) })
			stores = append(stores, r)
		}
		used := map[time.Time]int64{} // by the end of the period
		var taken []gcra.Charge
		latest := server.now() // that the clock has shown
		var back time.Duration
		left := time.Hour
		for range 30 {
			r := stores[rapid.IntRange(0, 1).Draw(t, "store")]
			if len(taken) > 0 && rapid.IntRange(0, 4).Draw(t, "refund") == 0 {
				i := rapid.IntRange(0, len(taken)-1).Draw(t, "which")
				if err := r.Refund(t.Context(), taken[i:i+1]); err != nil {
					t.Fatal(err)
				}
				used[taken[i].Period] -= taken[i].Cost
				taken = append(taken[:i], taken[i+1:]...)
			}
			c := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(n, calendar), Cost: rapid.Int64Range(0, 3).Draw(t, "cost")}
			if rapid.IntRange(0, 4).Draw(t, "settles") == 0 {
				c.Limit = gcra.Quota(n+debt, calendar)
			}
			charges := []gcra.Charge{c}
			allowed, err := r.Take(t.Context(), charges)
			if err != nil {
				t.Fatal(err)
			}
			c = charges[0]
			_, ends := calendar.Period(server.now())
			begins, _ := calendar.Period(c.Period.Add(-1))
			if left = c.Result.ResetAfter; allowed && (c.Period.Before(ends) || begins.After(latest)) {
				t.Fatalf("at %v, %v at most: charged in the period from %v to %v", server.now(), latest, begins, c.Period)
			}
			if allowed && c.Cost > 0 {
				taken = append(taken, c)
				if used[c.Period] += c.Cost; used[c.Period] > c.Limit.Count {
					t.Fatalf("%v: %d used in the period until %v", c.Limit, used[c.Period], c.Period)
				}
			}
			server.advance(back)
			back = 0
			switch rapid.IntRange(0, 2).Draw(t, "clock") {
			case 0:
				back = time.Duration(rapid.Int64Range(1, int64(59*time.Minute/gcratest.Tick)).Draw(t, "back")) * gcratest.Tick
				server.advance(-back)
			case 1:
				server.advance(time.Duration(rapid.Int64Range(0, int64(left/gcratest.Tick)).Draw(t, "forward")) * gcratest.Tick)
			}
			if now := server.now(); now.After(latest) {
				latest = now
			}
		}
	})
}

// A refund in the period that was charged gives back; in a later one it does nothing,
// whatever the clock of the process.
func TestQuotaRefundNamesItsPeriod(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	for _, skew := range []time.Duration{0, 5 * aDay, -5 * aDay} {
		r := newStore(client)
		r.SetClock(func() time.Time { return server.now().Add(skew) })
		first := gcratest.MustTake(t, r, hourlyQuota("s", 3))
		remaining := func() int64 {
			return gcratest.MustTake(t, r, gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(3, gcra.Hourly)})[0].Result.Remaining
		}
		if err := r.Refund(t.Context(), first); err != nil || remaining() != 3 || first[0].Result.Remaining != 3 {
			t.Errorf("off by %v: %v, %d remaining; want 3", skew, err, remaining())
		}
		second := gcratest.MustTake(t, r, hourlyQuota("s", 3))
		server.advance(time.Hour)
		gcratest.MustTake(t, r, hourlyQuota("s", 3))
		if err := r.Refund(t.Context(), second); err != nil || remaining() != 2 || second[0].Result.Remaining != 2 {
			t.Errorf("off by %v, an hour later: %v, %d remaining, %+v; want 2", skew, err, remaining(), second[0].Result)
		}
	}
}

// A key of a quota names its calendar, and expires soon after the period ends.
func TestQuotaKeys(t *testing.T) {
	client := anyRedis(t)
	r := newStore(client)
	berlin, err := time.LoadLocation("Europe/Berlin")
	if err != nil {
		t.Fatal(err)
	}
	for _, tt := range []struct {
		calendar gcra.Calendar
		want     string
	}{
		{gcra.Hourly, "{s}:p~hour"},
		{gcra.Monthly.From(15), "{s}:p~month15"},
		{gcra.Daily.In(berlin), "{s}:p~day.Europe/Berlin"},
		{gcra.Weekly.From(7).In(berlin), "{s}:p~week7.Europe/Berlin"},
	} {
		c := gcratest.MustTake(t, r, gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(5, tt.calendar), Cost: 1})[0]
		ttl := client.PTTL(t.Context(), r.Prefix+tt.want).Val()
		if ttl < c.Result.ResetAfter-time.Minute || ttl > c.Result.ResetAfter+11*time.Second {
			t.Errorf("%v: the key %s%s expires in %v; want within 10 s after the period, which ends in %v", c.Limit, r.Prefix, tt.want, ttl, c.Result.ResetAfter)
		}
	}
}

// A cached denial of a quota lasts no longer than its period, and RetryAfter of it leads
// into the next one.
func TestQuotaDenialIsCached(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	r := newStore(client)
	r.NoDenialCache, r.DenialTTL = false, aDay
	start := server.now()
	r.SetClock(func() time.Time { return server.now().Add(-aYear) })
	server.advance(period(start).Sub(start) - time.Minute)
	gcratest.MustTake(t, r, hourlyQuota("s", 1))
	for i := range 5 {
		c := gcratest.MustTake(t, r, hourlyQuota("s", 1))[0]
		if c.Result.Allowed || c.Result.RetryAfter < time.Minute || c.Result.RetryAfter > time.Minute+time.Millisecond || !c.Period.Equal(period(start)) {
			t.Errorf("denial %d: got %+v until %v; want to wait for a minute", i, c.Result, c.Period)
		}
	}
	if n := r.Stats().CachedDenials; n < 4 {
		t.Errorf("got %d cached denials; want at least 4 of 5", n)
	}
	server.advance(time.Minute)
	if c := gcratest.MustTake(t, r, hourlyQuota("s", 1))[0]; !c.Result.Allowed {
		t.Errorf("in the next period: got %+v; want allowed", c.Result)
	}
}

// RetryAfter of a cached denial leads into the next period also if the last answer, by which
// the store knows the clock of Redis, came late.
func TestQuotaDenialAfterALateAnswer(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	r := newStore(client)
	r.NoDenialCache, r.DenialTTL = false, aDay
	r.SetClock(server.now)
	gcratest.MustTake(t, r, hourlyQuota("s", 1))
	gcratest.MustTake(t, r, hourlyQuota("s", 1)) // denied
	late := time.Duration(0)
	client.AddHook(scriptHook(func(redis.Cmder) error { server.advance(late); return nil }))
	late = 40 * time.Millisecond
	gcratest.MustTake(t, r, hourlyQuota("other", 1))
	late = 0
	c := gcratest.MustTake(t, r, hourlyQuota("s", 1))[0]
	if n := r.Stats().CachedDenials; n == 0 || c.Result.Allowed {
		t.Fatalf("got %+v, %d cached denials; want a cached denial", c.Result, n)
	}
	server.advance(c.Result.RetryAfter)
	if again := gcratest.MustTake(t, r, hourlyQuota("s", 1))[0]; !again.Result.Allowed {
		t.Errorf("after %v: got %+v; want allowed", c.Result.RetryAfter, again.Result)
	}
}

func period(now time.Time) time.Time { return now.Truncate(time.Hour).Add(time.Hour) }

// While Redis is away, Local goes on from what it has said of each quota, by its clock.
func TestLocalQuota(t *testing.T) {
	for _, skew := range []time.Duration{0, 3 * aYear, -aYear} {
		client := anyRedis(t)
		server := stopClock(t, client)
		r := newStore(client)
		r.NoDenialCache = false
		r.SetClock(func() time.Time { return server.now().Add(skew) })
		gcratest.MustTake(t, r, hourlyQuota("s", 5))
		gcratest.MustTake(t, r, hourlyQuota("s", 5))
		for i, want := range []bool{true, true, true, false} {
			if c := gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))[0]; c.Result.Allowed != want || !c.Period.Equal(period(server.now())) {
				t.Errorf("off by %v, call %d: got %+v until %v; want allowed %v", skew, i, c.Result, c.Period, want)
			}
		}
		server.advance(time.Hour)
		if c := gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))[0]; !c.Result.Allowed || c.Result.Remaining != 4 {
			t.Errorf("off by %v, the next hour: got %+v; want 4 of 5", skew, c.Result)
		}
	}
}

// The clock of a server that jumps by periods between a call and its repetition is an
// error, and nothing is taken.
func TestQuotaOfAServerWhoseClockJumps(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	r := newStore(client)
	gcratest.MustTake(t, r, hourly("s", 5)) // loads the script
	calls := 0
	client.AddHook(scriptHook(func(redis.Cmder) error {
		calls++
		server.advance(10 * aDay)
		return nil
	}))
	charges := []gcra.Charge{hourlyQuota("s", 5)}
	if allowed, err := r.Take(t.Context(), charges); err == nil || allowed || !strings.Contains(err.Error(), "clock") {
		t.Errorf("got %v, %v; want an error about the clock", allowed, err)
	}
	if calls != 2 {
		t.Errorf("got %d calls; want 2", calls)
	}
	if keys := redistest.Keys(t, client, r.Prefix); len(keys) != 1 {
		t.Errorf("got keys %q; want only that of the rate", keys)
	}
}

// An admission has at most as many calendars as a byte can name.
func TestQuotasOfManyCalendars(t *testing.T) {
	client := anyRedis(t)
	r := newStore(client)
	var charges []gcra.Charge
	for i := range 70 {
		calendar := gcra.Monthly.From(1 + i%28)
		calendar.Location = []string{"", "Europe/Berlin", "Asia/Tokyo"}[i/28]
		charges = append(charges, gcra.Charge{Subject: fmt.Sprint("s", i), Policy: "p", Limit: gcra.Quota(5, calendar), Cost: 1})
	}
	if _, err := r.Take(context.Background(), charges); err == nil || errors.Is(err, context.DeadlineExceeded) || !strings.Contains(err.Error(), "quotas of 70 periods in one call; want at most 63") {
		t.Errorf("got %v; want an error about 70 calendars", err)
	}
	gcratest.MustTake(t, r, charges[:63]...)

	// Nor has a refund more periods, also of one calendar.
	charges = nil
	for i := range 70 {
		charges = append(charges, gcratest.MustTake(t, r, hourlyQuota(fmt.Sprint("s", i), 5))...)
		charges[i].Period = charges[i].Period.Add(time.Duration(-i) * time.Hour)
	}
	if err := r.Refund(t.Context(), charges); err == nil || !strings.Contains(err.Error(), "quotas of 70 periods in one call; want at most 63") {
		t.Errorf("a refund: got %v; want an error about 70 periods", err)
	}
	if err := r.Refund(t.Context(), charges[:63]); err != nil {
		t.Error(err)
	}
	for i, c := range charges {
		want := int64(4)
		if i == 0 {
			want = 5
		}
		c.Cost = 0
		if got := gcratest.MustTake(t, r, c)[0].Result.Remaining; got != want {
			t.Errorf("%s: got %d left; want %d", c.Subject, got, want)
		}
	}
}

// What Local has taken before Redis has answered at all counts after it has: Redis's clock
// does not move the end of the period that Local knows.
func TestLocalQuotaBeforeTheFirstAnswer(t *testing.T) {
	for _, skew := range []time.Duration{0, 5 * time.Millisecond, -5 * time.Millisecond, 30 * time.Second, -30 * time.Second} {
		client := anyRedis(t)
		server := stopClock(t, client)
		r := newStore(client)
		r.NoDenialCache = false
		r.SetClock(func() time.Time { return server.now().Add(skew) })
		gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))
		gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))
		gcratest.MustTake(t, r, hourlyQuota("other", 5)) // Redis answers
		for i, want := range []bool{true, true, true, false} {
			if c := gcratest.MustTake(t, r.Local(1), hourlyQuota("s", 5))[0]; c.Result.Allowed != want || !c.Period.Equal(period(server.now())) {
				t.Errorf("off by %v, call %d: got %+v until %v; want allowed %v", skew, i, c.Result, c.Period, want)
			}
		}
	}
}
