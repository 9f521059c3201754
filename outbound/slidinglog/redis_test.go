package slidinglog_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// A log is a list of the documented form. It expires at most 2 ms after its window is empty.
func TestRedisValues(t *testing.T) {
	client := patient(t, redistest.Start(t))
	r := newStore(t, client, config{})
	ctx := t.Context()
	for _, limit := range []gcra.Limit{gcra.PerSecond(40), gcra.PerHour(40), {Count: 40, Per: 5*time.Second + 1}, {Count: 40, Per: 366 * 24 * time.Hour}} {
		charge := gcra.Charge{Subject: "ip:192.0.2.7", Policy: limit.String(), Limit: limit, Cost: 1}
		key := r.Prefix() + "{ip:192.0.2.7}:" + limit.String()
		mustTake(t, r, charge)
		mustTake(t, r, charge, charge)
		charge.Cost = 12
		mustTake(t, r, charge)
		log := charges(t, client, key)
		expires, err := redistest.ExpireTime(ctx, client, key)
		if err != nil {
			t.Fatal(err)
		}

		var units [][2]int64
		for _, c := range log {
			units = append(units, [2]int64{c.start, c.stop})
		}

		if want := [][2]int64{{0, 1}, {1, 2}, {2, 3}, {3, 15}}; !slices.Equal(units, want) {
			t.Fatalf("%v: got %v; want %v", limit, units, want)
		}
		ends := time.Duration(log[3].at)*time.Microsecond + limit.Per
		if expires < ends || expires > ends+2*time.Millisecond {
			t.Errorf("%v: expires at %v; want at %v, when the window is empty", limit, expires, ends)
		}
	}
}

// A charge takes at most 20 bytes, and those that have left the window take none.
func TestRedisMemory(t *testing.T) {
	t.Parallel()
	client := patient(t, redistest.Start(t))
	stopped := stopClock(t, client)
	r := newStore(t, client, config{})
	key := r.Prefix() + "{s}:p"
	take := func(n int64) {
		for range n {
			stopped.advance(time.Millisecond)
			mustTake(t, r, hourly("p", 3000, 1))
		}
	}

	usage := func() int64 {
		n, err := client.MemoryUsage(t.Context(), key, 0).Result()
		if err != nil {
			t.Fatal(err)
		}
		return n
	}

	take(128)
	few := usage()
	take(2000)
	many := usage()
	if per := float64(many-few) / 2000; per > 20 {
		t.Errorf("got %.1f bytes for each of 2000 charges; want at most 20", per)
	}

	stopped.advance(time.Hour - 128*time.Millisecond)
	take(128)
	if n := len(charges(t, client, key)); n != 128 {
		t.Errorf("got %d charges after an hour; want the 128 of the window", n)
	}
	if got, most := usage(), few+2*128; got > most { // a later time may take two bytes more
		t.Errorf("got %d bytes after an hour; want at most %d", got, most)
	}
}

// In large logs, with charges of all sizes, the results are those of Memory.
func TestRedisLarge(t *testing.T) {
	t.Parallel()
	client := patient(t, redistest.Start(t))
	stopped := stopClock(t, client)
	c := new(clock)
	r, m := newStore(t, client, config{}), slidinglog.NewMemory(config{Now: c.now})
	limit := gcra.Limit{Count: 1 << 40, Per: 14 * 24 * time.Hour}
	for i := range int64(1000) {
		cost := 1 + i*i%7
		if i%50 == 0 {
			cost = math.MaxInt32
		}
		charge := gcra.Charge{Limit: limit, Cost: cost, Peek: cost == 0}
		mustTake(t, r, charge)
		mustTake(t, m, charge)
		c.advance(time.Second)
		stopped.advance(time.Second)
	}

	for _, cost := range []int64{1 << 40, 1<<40 - 1, 1<<40 - math.MaxInt32, 1<<40 - 100, 1<<40 - 7, 1<<40 - 19*math.MaxInt32} {
		charge := gcra.Charge{Limit: limit, Cost: cost, Peek: cost == 0}
		got, want := mustTake(t, r, charge)[0].Result, mustTake(t, m, charge)[0].Result
		if got != want || got.Allowed {
			t.Errorf("cost %d: got %+v; want %+v, a denial", cost, got, want)
		}
	}
}

// If Redis does not answer, a call ends after Timeout, independent of the client's settings, or when
// the context is canceled.
func TestTimeout(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	o := server.Options()
	o.Addr = proxy.Addr
	client := redis.NewClient(o)
	r := storeOn(t, client, config{})
	t.Cleanup(func() { client.Close() })
	redistest.Eventually(t, patience, "a first answer", func() bool { _, err := r.Take(t.Context(), []gcra.Charge{hourly("p", 5, 1)}); return err == nil })
	proxy.Blackhole()
	start := time.Now()
	_, err := gcra.Take(t.Context(), r, hourly("p", 5, 1))
	if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d < 50*time.Millisecond || d > time.Second {
		t.Errorf("got %v after %v; want context.DeadlineExceeded after 50ms", err, d)
	}

	ctx, cancel := context.WithCancel(t.Context())
	time.AfterFunc(10*time.Millisecond, cancel)
	if _, err := gcra.Take(ctx, storeOn(t, client, config{Timeout: patience}), hourly("p", 5, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v; want context.Canceled", err)
	}
}

// If the subjects are on several servers, all windows count from the time of the request, and a
// denial writes nothing on any server.
func TestRingDelay(t *testing.T) {
	one, two := redistest.Start(t), redistest.Start(t)
	ring := redis.NewRing(&redis.RingOptions{Addrs: map[string]string{"one": one.Addr, "two": two.Addr}, ReadTimeout: patience})
	t.Cleanup(func() { ring.Close() })
	r := newStore(t, ring, config{})
	pair := func() []gcra.Charge {
		var charges []gcra.Charge
		for i := range 8 {
			charges = append(charges, gcra.Charge{Subject: fmt.Sprint(i), Limit: gcra.PerHour(20), Cost: 1, MaxDelay: 90 * time.Minute, MaxWait: 90 * time.Minute})
		}
		charges[3].Limit.Count = 1
		return charges
	}

	for i, want := range []time.Duration{0, time.Hour} {
		for _, c := range mustTake(t, r, pair()...) {
			if got := c.Result; !got.Allowed || got.Delay > want || got.Delay < want-time.Minute {
				t.Errorf("admission %d: got %+v; want a delay of %v", i, got, want)
			}
		}
	}

	before := dump(t, one.Client(), r.Prefix()) + dump(t, two.Client(), r.Prefix())
	if denied := mustTake(t, r, pair()...); admitted(denied) || denied[3].Result.Allowed {
		t.Errorf("the third: got %+v; want denied by the fourth charge", denied)
	}
	if after := dump(t, one.Client(), r.Prefix()) + dump(t, two.Client(), r.Prefix()); after != before {
		t.Errorf("after a denial:\ngot  %s\nwant %s", after, before)
	}
}

// The results of Redis are those of Memory, to the microsecond.
func TestRedisAgreesWithMemory(t *testing.T) {
	client := redistest.Any(t)
	stopped := stopClock(t, client)
	rapid.Check(t, func(t *rapid.T) {
		limits := [2]gcra.Limit{anyLimit(t), anyLimit(t)}
		delays := [2]time.Duration{0, time.Duration(rapid.Int64Range(0, 4).Draw(t, "delay")) * limits[1].Per}
		c := new(clock)
		m, r := slidinglog.NewMemory(config{Now: c.now}), newStore(t, client, config{})
		for i := range rapid.IntRange(1, 30).Draw(t, "calls") {
			if d := pause(t, limits[i%2]); d > 0 {
				c.advance(d)
				stopped.advance(d)
			}

			charges := make([]gcra.Charge, rapid.IntRange(1, 3).Draw(t, "charges"))
			for j := range charges {
				k := rapid.IntRange(0, 1).Draw(t, "limit")
				charges[j] = gcra.Charge{
					Policy: fmt.Sprint(k), Limit: limits[k], MaxDelay: delays[k],
					Cost:    rapid.Int64Range(0, limits[k].Count+1).Draw(t, "cost"),
					Peek:    rapid.IntRange(0, 4).Draw(t, "peek") == 0,
					Late:    rapid.IntRange(0, 3).Draw(t, "late") == 0,
					MaxWait: time.Duration(rapid.Int64Range(0, int64(delays[k]/time.Microsecond)).Draw(t, "within")) * time.Microsecond,
					Shadow:  rapid.IntRange(0, 4).Draw(t, "shadow") == 0,
				}
			}

			want := slices.Clone(charges)
			refund := rapid.IntRange(0, 5).Draw(t, "kind") == 0
			allowed, err := takeOrRefund(t.Context(), r, charges, refund)
			if err != nil {
				t.Fatal(err)
			}

			wanted, err := takeOrRefund(t.Context(), m, want, refund)
			if err != nil {
				t.Fatal(err)
			}
			if allowed != wanted || !slices.Equal(charges, want) {
				t.Fatalf("call %d:\nRedis  %+v\nMemory %+v", i, charges, want)
			}
		}
	})
}
