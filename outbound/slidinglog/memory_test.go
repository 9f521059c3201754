package slidinglog_test

import (
	"fmt"
	"slices"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
)

// naive is the simplest log: a list of the times of all units.
type naive struct{ units []time.Duration }

func (n *naive) take(now time.Duration, l gcra.Limit, cost int64) gcra.Result {
	n.units = slices.DeleteFunc(n.units, func(at time.Duration) bool { return at <= now-l.Per })
	r := gcra.Result{Allowed: int64(len(n.units))+cost <= l.Count || cost == 0, Never: cost > l.Count}
	if r.Allowed {
		r.Taken = cost
		for range cost {
			n.units = append(n.units, now)
		}
	} else if !r.Never {
		r.RetryAfter = n.units[int64(len(n.units))+cost-l.Count-1] + l.Per - now
	}
	n.fill(&r, now, l)
	return r
}

func (n *naive) refund(now time.Duration, l gcra.Limit, cost int64) gcra.Result {
	n.units = slices.DeleteFunc(n.units, func(at time.Duration) bool { return at <= now-l.Per })
	n.units = n.units[:max(int64(len(n.units))-cost, 0)]
	r := gcra.Result{Allowed: true}
	n.fill(&r, now, l)
	return r
}

func (n *naive) fill(r *gcra.Result, now time.Duration, l gcra.Limit) {
	r.Remaining = l.Count - int64(len(n.units))
	if len(n.units) > 0 {
		r.ResetAfter = n.units[len(n.units)-1] + l.Per - now
	}
}

// tooMany returns an error if a window of length per contains more than count of the sorted times.
func tooMany(times []time.Duration, count int, per time.Duration) error {
	for i := range len(times) - count {
		if d := times[i+count] - times[i]; d < per {
			return fmt.Errorf("%d within %v, from %v on; want at most %d in %v", count+1, d, times[i], count, per)
		}
	}
	return nil
}

func anyLimit(t *rapid.T) gcra.Limit {
	return gcra.Limit{
		Count: rapid.Int64Range(1, 12).Draw(t, "count"),
		Per:   time.Duration(rapid.Int64Range(20, 2_000_000).Draw(t, "per")) * time.Microsecond,
	}
}

// pause returns 0, a short time, or up to twice the window.
func pause(t *rapid.T, l gcra.Limit) time.Duration {
	return time.Microsecond * time.Duration(rapid.OneOf(
		rapid.Just(int64(0)),
		rapid.Int64Range(0, l.Per.Microseconds()/l.Count),
		rapid.Int64Range(0, 2*l.Per.Microseconds()),
	).Draw(t, "pause"))
}

// Every result is that of the naive log, and no window contains more than Count units.
func TestMemoryStrict(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit, c := anyLimit(t), new(clock)
		m := slidinglog.NewMemory(config{Now: c.now})
		var want naive
		var passed []time.Duration
		refunded := false
		for i := range rapid.IntRange(1, 60).Draw(t, "calls") {
			c.advance(pause(t, limit))
			now := time.Duration(c.ns.Load())
			charge := []gcra.Charge{{Limit: limit, Cost: rapid.Int64Range(1, limit.Count+1).Draw(t, "cost")}}
			model, refund := want.take, rapid.IntRange(0, 9).Draw(t, "kind") == 0
			if refund {
				model, refunded = want.refund, true
			}

			allowed, err := takeOrRefund(t.Context(), m, charge, refund)
			if err != nil || allowed != charge[0].Result.Allowed {
				t.Fatalf("call %d: got %v, %v; want %v, nil", i, allowed, err, charge[0].Result.Allowed)
			}

			if got, want := charge[0].Result, model(now, limit, charge[0].Cost); got != want {
				t.Fatalf("call %d, cost %d at %v:\ngot  %+v\nwant %+v", i, charge[0].Cost, now, got, want)
			}
			if charge[0].Result.Allowed {
				passed = append(passed, slices.Repeat([]time.Duration{now}, int(charge[0].Cost))...)
			}
		}

		if err := tooMany(passed, int(limit.Count), limit.Per); err != nil && !refunded {
			t.Fatal(err)
		}
	})
}

// Charges that queue for several windows pass in the order of arrival, and no window contains more
// than Count units.
func TestMemoryStrictQueues(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limits := [2]gcra.Limit{anyLimit(t), anyLimit(t)}
		delays := [2]time.Duration{}
		for i := range delays {
			delays[i] = time.Duration(rapid.Int64Range(0, 4).Draw(t, "delay")) * limits[i].Per
		}

		c := new(clock)
		m := slidinglog.NewMemory(config{Now: c.now})
		var passed [2][]time.Duration
		for range rapid.IntRange(1, 60).Draw(t, "calls") {
			c.advance(pause(t, limits[0]))
			var charges []gcra.Charge
			for i, l := range limits {
				if rapid.Bool().Draw(t, "in") {
					charges = append(charges, gcra.Charge{Policy: fmt.Sprint(i), Limit: l, MaxDelay: delays[i], MaxWait: delays[i],
						Cost: rapid.Int64Range(1, l.Count).Draw(t, "cost")})
				}
			}

			allowed, err := m.Take(t.Context(), charges)
			if err != nil {
				t.Fatal(err)
			}
			if !allowed {
				continue
			}

			delay := time.Duration(0) // of the request: the largest
			for _, c := range charges {
				delay = max(delay, c.Result.Delay)
			}

			for _, charge := range charges {
				if charge.Result.Delay > charge.MaxDelay {
					t.Fatalf("got a delay of %v; want at most %v", charge.Result.Delay, charge.MaxDelay)
				}
				i := int(charge.Policy[0] - '0')
				at := time.Duration(c.ns.Load()) + delay
				passed[i] = append(passed[i], slices.Repeat([]time.Duration{at}, int(charge.Cost))...)
			}
		}

		for i, l := range limits {
			if !slices.IsSorted(passed[i]) {
				t.Fatalf("%v: one overtook another: %v", l, passed[i])
			}
			if err := tooMany(passed[i], int(l.Count), l.Per); err != nil {
				t.Fatalf("%v: %v", l, err)
			}
		}
	})
}

// A client that invents a key for each request fills no memory while it is denied, or only asks.
func TestMemoryOfInventedKeys(t *testing.T) {
	m := slidinglog.NewMemory(slidinglog.Config{})
	take := func(charges ...gcra.Charge) bool {
		allowed, err := m.Take(t.Context(), charges)
		if err != nil {
			t.Fatal(err)
		}
		return allowed
	}

	const partners = 100
	for i := range partners {
		take(gcra.Charge{Subject: fmt.Sprint(i), Policy: "partner", Limit: gcra.PerDay(1)})
	}

	full := gcra.Charge{Subject: "0", Policy: "partner", Limit: gcra.PerDay(1)}
	for i := range 10_000 {
		denied := gcra.Charge{Subject: fmt.Sprint("invented", i), Policy: "key", Limit: gcra.PerDay(1)}
		if take(denied, full) {
			t.Fatal("got an admission of a full log; want a denial")
		}
		peek := denied
		peek.Policy, peek.Peek = "other", true
		take(peek)

		if most := 2*partners + 1; m.Logs() > most {
			t.Fatalf("got %d logs after %d invented keys; want at most %d", m.Logs(), i+1, most)
		}
	}
}

func TestMemoryContract(t *testing.T) {
	storetest.Run(t, func(testing.TB) storetest.Backend {
		c := new(clock)
		return storetest.Backend{Store: slidinglog.NewMemory(config{Now: c.now}), Advance: c.advance, Exact: true, Algorithm: storetest.Sliding}
	})
}
