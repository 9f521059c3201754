package known

import (
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
)

// simulation is a Redis whose replies are delayed and reordered, a cache that learns from them, and their clock.
type simulation struct {
	now      int64
	tats     map[uint64]int64 // by hash
	grants   outage.Grants
	cache    *Cache
	inFlight []*request
}

type request struct {
	charges  []buckets.Charge
	refund   bool
	sent     int64
	done     bool // by Redis
	admitted bool
}

func newSimulation(ttl time.Duration) *simulation {
	w := &simulation{tats: make(map[uint64]int64)}
	clock := buckets.NewClock(func() time.Time { return time.Unix(tat.Epoch, 0).Add(tat.Duration(w.now)) })
	w.cache = New(clock, ttl, &w.grants)
	return w
}

func (w *simulation) request(charges []gcra.Charge, refund bool) *request {
	q := &request{charges: make([]buckets.Charge, len(charges)), refund: refund, sent: w.now}
	for i := range charges {
		if err := w.cache.Prepare(&charges[i], refund, &q.charges[i]); err != nil {
			panic(err)
		}
	}
	if refund {
		w.cache.RefundSent(q.charges)
	}
	return q
}

func (w *simulation) denies(charges []gcra.Charge) bool {
	return w.cache.Deny(w.request(charges, false).charges, charges)
}

// redis applies a request as take.lua does.
func (w *simulation) redis(q *request) {
	tats := make(map[uint64]int64)
	q.admitted, q.done = true, true
	for i := range q.charges {
		c := &q.charges[i]
		at, ok := tats[c.Hash]
		if !ok {
			at = w.tats[c.Hash]
		}
		c.Ahead = c.Clamp(at, w.now)

		if c.Admits(c.Ahead) {
			if c.Inc != 0 {
				tats[c.Hash] = w.now + c.After(c.Ahead)
			}
		} else if !c.Shadow {
			q.admitted = false
		}
	}

	if q.admitted {
		maps.Copy(w.tats, tats)
	}
}

// learn has the cache learn from the answer, or from its loss.
func (w *simulation) learn(q *request, lost bool) {
	switch {
	case q.refund:
		w.cache.RefundAnswered(q.charges)
	case !lost:
		w.cache.Learn(q.charges, q.admitted, q.sent, w.now)
	}
}

// Two refunds are answered at about the same time, and the earlier answer is noted last: what was sent between them is
// not learned.
func TestRefundsAnsweredInAnyOrder(t *testing.T) {
	var now int64
	read := func() {}
	clock := buckets.NewClock(func() time.Time {
		at := time.Unix(tat.Epoch, 0).Add(tat.Duration(now))
		read()
		return at
	})
	w := &simulation{tats: make(map[uint64]int64)}
	w.cache = New(clock, time.Second, &w.grants)
	charge := []gcra.Charge{{Subject: "s", Policy: "p", Limit: gcra.PerSecond(1)}}
	first, second := w.request(charge, true), w.request(charge, true)

	now = 10
	read = func() {
		read = func() {}
		now = 30
		w.cache.RefundAnswered(second.charges)
	}
	w.cache.RefundAnswered(first.charges)

	full := w.request(charge, false)
	full.charges[0].Ahead = full.charges[0].Room
	w.cache.Learn(full.charges, false, 20, now)
	if w.denies(charge) {
		t.Error("an answer to a call from before a refund was learned")
	}
}

// What the cache denies, Redis would deny at the same time, for any takes and refunds of
// this process, any latency and any order of replies.
func TestCacheNeverDeniesWhatRedisAdmits(t *testing.T) {
	limits := []gcra.Limit{gcra.PerSecond(10), gcra.PerSecond(2).WithBurst(4), gcra.PerMinute(20), {Count: 3, Per: 700 * time.Millisecond, Burst: 1}}
	denied := 0
	check := func(t *rapid.T) {
		w := newSimulation(time.Second)
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += rapid.Int64Range(0, tat.Ticks(300*time.Millisecond)).Draw(t, "pause")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1: // a call
				var charges []gcra.Charge
				for i := range rapid.IntRange(1, 3).Draw(t, "charges") {
					p := rapid.IntRange(0, len(limits)-1).Draw(t, "policy")
					delay := time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * 400 * time.Millisecond
					charges = append(charges, gcra.Charge{
						Subject:  fmt.Sprint("key", rapid.IntRange(0, 1).Draw(t, "subject"), p),
						Policy:   "p",
						Limit:    limits[p],
						Cost:     rapid.Int64Range(1, 4).Draw(t, "cost"),
						Peek:     rapid.IntRange(0, 4).Draw(t, "peek") == 0,
						MaxDelay: delay,
						MaxWait:  delay,
						MaxDebt:  5 * rapid.Int64Range(0, 1).Draw(t, "debt"),
						Late:     rapid.IntRange(0, 3).Draw(t, "late") == 0,
						Shadow:   i > 0 && rapid.Bool().Draw(t, "shadow"),
					})
				}

				refund := rapid.IntRange(0, 3).Draw(t, "refund") == 0
				if !refund && w.denies(charges) {
					denied++
					again := w.request(charges, false)
					w.redis(again)
					if again.admitted {
						t.Fatalf("the cache denied %+v; Redis would have admitted", charges)
					}
					continue
				}

				w.inFlight = append(w.inFlight, w.request(charges, refund))

			case 2, 3: // requests reach Redis
				for _, q := range w.inFlight {
					if !q.done && rapid.Bool().Draw(t, "arrives") {
						w.redis(q)
					}
				}

			default: // replies arrive, and some are lost
				var rest []*request
				for _, q := range w.inFlight {
					if !rapid.Bool().Draw(t, "returns") {
						rest = append(rest, q)
						continue
					}
					w.learn(q, !q.done || rapid.IntRange(0, 9).Draw(t, "lost") == 0)
				}

				w.inFlight = rest
			}
		}
	}
	for range 50 { // of a hundred each
		rapid.Check(t, check)
	}

	if denied == 0 {
		t.Error("got no cached denial; want some, or nothing is tested")
	}
}

// RetryAfter of a cached denial includes the latency of the call by which the TAT was
// learned, so that a client that obeys it is allowed.
func TestCachedRetryAfterIsNotTooShort(t *testing.T) {
	w := newSimulation(time.Second)
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take := w.request(c, false)
	w.now += tat.Ticks(20 * time.Millisecond)
	w.redis(take)
	w.now += tat.Ticks(5 * time.Millisecond)
	w.learn(take, false)
	if !w.denies(c) {
		t.Fatal("the cache does not deny although the bucket is empty")
	}
	exact := time.Hour - 5*time.Millisecond
	if got := c[0].Result.RetryAfter; got < exact || got > exact+21*time.Millisecond {
		t.Errorf("got RetryAfter %v; want %v to 21ms more", got, exact)
	}
}

// What the local store has granted and Redis does not know denies until it is charged, also without a denial cache.
func TestUnreportedDenies(t *testing.T) {
	w := newSimulation(0)
	charges := []gcra.Charge{{Subject: "s", Policy: "p", Limit: gcra.PerHour(10), Cost: 10}}
	alone := &w.request(charges, false).charges[0]
	w.grants.Add(alone, func() string { return "key" }, w.now, w.now, 1)

	w.now += tat.Ticks(time.Second)
	charges[0].Cost = 1
	q := w.request(charges, false)
	w.redis(q) // an answer that does not know of that
	w.learn(q, false)
	if !w.denies(charges) {
		t.Error("Redis answers without what was granted, and the request passes; want it denied")
	}

	report := w.grants.Reports(w.now, 1)[0]
	w.grants.Record(&report, report.Amount, w.now, w.now)
	if w.denies(charges) {
		t.Error("after a report the request is denied; want it to be left to Redis")
	}
}
