package redisstore_test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// movedClock stands still unless it is moved.
type movedClock struct{ ahead atomic.Int64 }

func (c *movedClock) read() time.Time {
	return time.Date(2026, 11, 22, 0, 0, 0, 0, time.UTC).Add(time.Duration(c.ahead.Load()))
}

func (c *movedClock) add(d time.Duration) { c.ahead.Add(int64(d)) }

// counting returns a store that counts servers, by a clock that stands still.
func counting(t testing.TB, client redis.UniversalClient) (*redisstore.Store, *movedClock) {
	t.Helper()
	now := new(movedClock)
	r := storeOn(t, client, config{Timeout: patience})
	r.SetClock(now.read)
	r.Local(0)
	return r, now
}

const markKey = "{instances}" // after the Prefix

// Servers that lose Redis one after another do not count those that lost it before: of
// three, the first grants a third of the limit, the next a half, and the last all of it.
func TestSharesOfServersCutOffOneAfterAnother(t *testing.T) {
	t.Parallel()
	client := anyRedis(t)
	open := func() *redisstore.Store { return storeOn(t, client, config{Timeout: patience}) }
	a, b, c := open(), open(), open()
	mark := func(want int, servers ...*redisstore.Store) {
		redistest.Eventually(t, patience, fmt.Sprint("a count of ", want), func() bool {
			for _, s := range servers {
				s.Mark(time.Minute)
			}
			return !slices.ContainsFunc(servers, func(s *redisstore.Store) bool { return s.Stats().Instances != want })
		})
	}

	mark(3, a, b, c)
	a.Mark(time.Millisecond) // to the others, a server without a mark is one that is cut off
	mark(2, b, c)
	b.Mark(time.Millisecond)
	mark(1, c)

	const burst = 60
	for i, s := range []*redisstore.Store{a, b, c} {
		granted, charge := 0, hourly(fmt.Sprint("client of server ", i), burst)
		for range burst + 1 {
			res, err := gcra.Take(t.Context(), s.Local(0), charge)
			if err != nil {
				t.Fatal(err)
			}
			if res.Allowed {
				granted++
			}
		}

		if want := burst / (3 - i); granted != want {
			t.Errorf("server %d: got %d units granted alone; want %d", i, granted, want)
		}
	}
}

// Stores that no limiter uses, or that only peek and refund, leave no mark.
func TestStoresWithoutTakesAreNotCounted(t *testing.T) {
	client := anyRedis(t)
	r, _ := counting(t, client)
	caller := storeOn(t, client, config{Timeout: patience}) // as turns.Turns uses it
	for range 20 {
		if _, err := gcra.Peek(t.Context(), r, gcra.Charge{Subject: "k", Policy: "p", Limit: plenty.Limit}); err != nil {
			t.Fatal(err)
		}
		if err := r.Refund(t.Context(), []gcra.Charge{plenty}); err != nil {
			t.Fatal(err)
		}
		gcratest.MustTake(t, caller, plenty)
	}

	redistest.Eventually(t, patience, "the mark of a take", func() bool { return answers(r) && r.Stats().Instances > 0 })
	if n := r.Stats().Instances; n != 1 || caller.Stats().Instances != 0 {
		t.Errorf("got counts %d, and %d of a store that no limiter uses; want 1 and 0", n, caller.Stats().Instances)
	}
}

// A mark lasts three times as long as the marks of its store are apart: 6 s under
// traffic, so that a store that has stopped is not counted 8 s later.
func TestMarksExpire(t *testing.T) {
	client := anyRedis(t)
	r, now := counting(t, client)
	for _, tt := range []struct{ apart, lasts time.Duration }{
		{0, 6 * time.Second},
		{2 * time.Second, 6 * time.Second},
		{5 * time.Second, 15 * time.Second},
		{time.Hour, time.Minute},
		{2 * time.Second, 6 * time.Second},
	} {
		now.add(tt.apart)
		if err := client.Del(t.Context(), "rl:"+markKey).Err(); err != nil {
			t.Fatal(err)
		}

		var ttl time.Duration
		redistest.Eventually(t, patience, "the mark", func() bool {
			answers(r)
			ttl = client.PTTL(t.Context(), "rl:"+markKey).Val()
			return ttl > 0
		})

		if ttl > tt.lasts || ttl < tt.lasts/2 {
			t.Errorf("%v after the last mark: the key expires in %v; want %v", tt.apart, ttl, tt.lasts)
		}
		for range 10 {
			answers(r)
		}
	}
}

// A Redis that has forgotten the marks does not lower the count until all stores had
// time to mark themselves again.
func TestLostMarksDoNotLowerTheCount(t *testing.T) {
	client := anyRedis(t)
	r := storeOn(t, client, config{Timeout: patience})
	mark := func(want int) {
		t.Helper()
		r.Mark(6 * time.Second)
		if n := r.Stats().Instances; n != want {
			t.Errorf("got count %d; want %d", n, want)
		}
	}

	others := "a=9999999999999;b=9999999999999" // 9999999999999 ms: in 2286
	if err := client.Set(t.Context(), "rl:"+markKey, others, 0).Err(); err != nil {
		t.Fatal(err)
	}
	mark(3)
	if err := client.FlushAll(t.Context()).Err(); err != nil {
		t.Fatal(err)
	}
	mark(3)
	mark(3)
	mark(3)
	mark(1)
}

// The script on values that the store has not written, and at its bounds.
func TestInstancesScript(t *testing.T) {
	script, err := os.ReadFile("instances.lua")
	if err != nil {
		t.Fatal(err)
	}
	many := make([]string, 1500)
	for i := range many {
		many[i] = fmt.Sprintf("s%d=9999999999999", i)
	}

	for _, server := range anyAndEmbedded {
		t.Run(server.name, func(t *testing.T) {
			client := server.open(t)
			now := client.Time(t.Context()).Val().UnixMilli()

			at := func(in time.Duration) int64 { return now + in.Milliseconds() }
			for _, tt := range []struct {
				name, value string
				want        int64
			}{
				{"no key", "", -1},
				{"others, the own mark lost", fmt.Sprintf("a=%d;b=%d", at(5*time.Second), at(5*time.Second)), -3},
				{"others and the own mark", fmt.Sprintf("me=%d;a=%d", at(50*time.Second), at(50*time.Second)), 2},
				{"the own mark nearly over", fmt.Sprintf("me=%d;a=%d", at(time.Second), at(50*time.Second)), -2},
				{"one that is over", fmt.Sprintf("me=%d;a=%d;b=%d", at(50*time.Second), at(-time.Second), at(50*time.Second)), 2},
				{"the own mark twice", fmt.Sprintf("me=%d;me=%d", at(50*time.Second), at(50*time.Second)), 1},
				{"in the far future, after the clock went back", "me=9999999999999;a=9999999999999", 2},
				{"a number beyond all", "me=" + strings.Repeat("9", 400), 1},
				{"no marks", "hello;=;a=;=5;\x00\xff", -1},
				{"more than the most", strings.Join(many, ";"), -1000},
				{"1 MB", strings.Repeat("x=", 1<<19), -1},
			} {
				if err := client.Set(t.Context(), "k", tt.value, 0).Err(); err != nil {
					t.Fatal(err)
				}
				got, err := client.Eval(t.Context(), string(script), []string{"k"}, "me", 60000, 60000, 1000).Int64()
				if err != nil || got != tt.want {
					t.Errorf("%s: got %d, %v; want %d", tt.name, got, err, tt.want)
				}
				ttl := client.PTTL(t.Context(), "k").Val()
				if n := client.StrLen(t.Context(), "k").Val(); ttl <= 0 || ttl > time.Minute || n > 24_000 {
					t.Errorf("%s: the value has %d bytes and expires in %v; want at most 24,000 and a minute", tt.name, n, ttl)
				}

				again, err := client.Eval(t.Context(), string(script), []string{"k"}, "me", 60000, 60000, 1000).Int64()
				if want := max(tt.want, -tt.want); err != nil || again != want {
					t.Errorf("%s: the second time: got %d, %v; want %d", tt.name, again, err, want)
				}
			}

			if err := client.Del(t.Context(), "k").Err(); err != nil {
				t.Fatal(err)
			}
			if err := client.RPush(t.Context(), "k", "a list").Err(); err != nil {
				t.Fatal(err)
			}
			if got, err := client.Eval(t.Context(), string(script), []string{"k"}, "me", 60000, 60000, 1000).Int64(); err != nil || got != -1 {
				t.Errorf("a list: got %d, %v; want -1", got, err)
			}
		})
	}
}

// More servers than a limiter's Instances are logged, after five minutes of it.
func TestInstancesTooLowIsLogged(t *testing.T) {
	client := anyRedis(t)
	now := new(movedClock)
	log := new(diagtest.Text)
	r := storeOn(t, client, config{Timeout: patience, Logger: log.Logger()})
	r.SetClock(now.read)
	r.Local(5)
	r.Local(3)
	r.Local(0)

	set := func(others string) {
		own, _, _ := strings.Cut(client.Get(t.Context(), "rl:"+markKey).Val(), ";")
		others += ";" + own
		if err := client.Set(t.Context(), "rl:"+markKey, others, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}

	// passes passes time, in which the store marks itself every two seconds.
	passes := func(d time.Duration, want int) {
		t.Helper()
		for range d / (2 * time.Second) {
			now.add(2 * time.Second)
			r.Mark(6 * time.Second)
			if n := r.Stats().Instances; n != want {
				t.Fatalf("got count %d; want %d", n, want)
			}
		}
	}

	const others = "a=9999999999999;b=9999999999999;c=9999999999999;d=9999999999999"
	set(others)
	passes(4*time.Minute, 5)
	set("a=9999999999999;b=9999999999999")
	passes(4*time.Second, 3)
	set(others)
	passes(4*time.Minute, 5)

	if lines := log.Lines(""); len(lines) > 0 {
		t.Fatalf("got\n%s\nwant no line about two deployments of four minutes", strings.Join(lines, "\n"))
	}
	passes(2*time.Minute, 5)
	redistest.Eventually(t, patience, "the line", func() bool { return len(log.Lines("")) > 0 })
	if line := log.Lines("")[0]; !strings.Contains(line, "level=WARN") || !strings.Contains(line, "code=instances-too-low") ||
		!strings.Contains(line, "Instances is 3, but 5 servers use this Redis") {
		t.Errorf("got %s; want a warning of 3 and 5", line)
	}
}
