package redisstore_test

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Redis admits what the calendar on the wall says, to the tick, by its own clock, whatever
// the clock of the process says.
func TestQuotaIsTheCalendars(t *testing.T) {
	t.Parallel()
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		if err := server.set(rapid.Int64Range(0, 20*365*24).Draw(t, "start") * int64(time.Hour/gcratest.Tick)); err != nil {
			t.Fatal(err)
		}
		skew := time.Duration(rapid.SampledFrom([]int{0, 0, 1, -1, 40, -400}).Draw(t, "days off")) * aDay
		r := newStore(t, client, config{DenialTTL: rapid.SampledFrom([]time.Duration{aYear, -1}).Draw(t, "DenialTTL")})
		r.SetClock(func() time.Time { return server.now().Add(skew) })
		gcratest.CheckQuotas(t, r, server.now, server.advance, time.Microsecond)
	})
}

// The clock of Redis goes back by less than a period, and forward again, also behind the
// backs of several processes whose own clocks are wrong. No period has more than its quota,
// also with settlements, refunds and the denial cache, and none begins before its time.
func TestQuotaWhileTheClockOfRedisGoesBack(t *testing.T) {
	t.Parallel()
	client := anyRedis(t)
	server := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		const n, debt = 5, 3
		calendar := rapid.SampledFrom([]gcra.Calendar{gcra.Hourly, gcra.Daily, gcra.Monthly.From(15)}).Draw(t, "calendar")
		if err := server.set(rapid.Int64Range(24, 400*24).Draw(t, "start") * int64(time.Hour/gcratest.Tick)); err != nil {
			t.Fatal(err)
		}

		prefix := newPrefix()
		var stores []*redisstore.Store
		for range 2 {
			r := newStore(t, client, config{Prefix: prefix, DenialTTL: rapid.SampledFrom([]time.Duration{time.Second, -1}).Draw(t, "DenialTTL")})
			skew := time.Duration(rapid.SampledFrom([]int{0, 1, -40}).Draw(t, "days off")) * aDay
			r.SetClock(func() time.Time { return server.now().Add(skew) })
			stores = append(stores, r)
		}

		used := map[time.Time]int64{} // by the end of the period
		var taken []gcra.Charge
		latest := server.now() // that the clock has shown

		var back, left time.Duration
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

			c := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.Quota(n, calendar), Cost: rapid.Int64Range(1, 3).Draw(t, "cost")}
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

// The clock of a server that jumps by periods between a call and its repetitions is an
// error, and nothing is taken.
func TestQuotaOfAServerWhoseClockJumps(t *testing.T) {
	client := anyRedis(t)
	server := stopClock(t, client)
	r := settled(t, newStore(t, client, config{}))
	client.Del(t.Context(), r.Prefix()+"{ping}")
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
	if calls != 3 {
		t.Errorf("got %d calls; want 3", calls)
	}
	if keys := redistest.Keys(t, client, r.Prefix()); len(keys) != 1 {
		t.Errorf("got keys %q; want only that of the rate", keys)
	}
}

// What a server grants whose clock is a period ahead is charged in the current period, and
// does not begin the next one. A clock that is further ahead changes nothing in Redis.
func TestGrantOfAClockAhead(t *testing.T) {
	t.Parallel()
	for years, want := range map[int]int64{1: 1, 2: 4, 100: 4} {
		client := redistest.Start(t).Client()
		cfg := config{Prefix: newPrefix()}
		r, other := newStore(t, client, cfg), newStore(t, client, cfg)
		r.SetClock(func() time.Time { return time.Now().AddDate(years, 0, 0) })
		c := gcra.Charge{Subject: "s", Policy: "q", Limit: gcra.Quota(10, gcra.Yearly), Cost: 6}
		gcratest.MustTake(t, other, c)
		c.Cost = 3
		before := redistest.Calls(t, client, "mget")
		granted(t, r, 1, c)
		redistest.Eventually(t, patience, "a report", func() bool { return redistest.Calls(t, client, "mget") > before })
		peek, err := gcra.Peek(t.Context(), other, gcra.Charge{Subject: "s", Policy: "q", Limit: c.Limit})
		if err != nil || peek.Remaining != want || peek.ResetAfter > 366*aDay {
			t.Errorf("a clock %d years ahead: got %+v, %v; want %d of 10 left, until the year ends", years, peek, err, want)
		}
	}
}
