package redisstore

import (
	"context"
	"fmt"
	"maps"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// simulation is a Redis whose replies are delayed and reordered, a denial cache that
// learns from them, and their clock.
type simulation struct {
	now      int64
	tats     map[string]int64
	denials  *denialCache
	inFlight []*sentRequest
}

type sentRequest struct {
	*request
	sent int64
	done bool // by Redis
}

func newSimulation() *simulation {
	w := &simulation{tats: make(map[string]int64)}
	clock := buckets.NewClock(func() time.Time { return time.Unix(tat.Epoch, 0).Add(tat.Duration(w.now)) })
	w.denials = newDenialCache(clock, time.Second, new(outage.Grants))
	return w
}

func (w *simulation) request(charges []gcra.Charge, refund bool) *request {
	ops := make([]op, len(charges))
	for i := range charges {
		if err := w.denials.prepare(&charges[i], refund, &ops[i].Charge); err != nil {
			panic(err)
		}
		ops[i].key = charges[i].Subject
	}
	return newRequest(ops, refund)
}

func (w *simulation) denies(charges []gcra.Charge) bool {
	return w.denials.deny(w.request(charges, false).ops, charges)
}

// redis applies a request as take.lua does.
func (w *simulation) redis(q *request) {
	ahead := make(map[string]int64)
	q.admitted = true
	for i := range q.ops {
		o := &q.ops[i]
		at, ok := ahead[o.key]
		if !ok {
			at = w.tats[o.key]
		}
		o.Ahead = o.Clamp(at, w.now)
		if o.Admits(o.Ahead) {
			if o.Inc != 0 {
				ahead[o.key] = w.now + o.After(o.Ahead)
			}
		} else if !o.Shadow {
			q.admitted = false
		}
	}
	if q.admitted {
		maps.Copy(w.tats, ahead)
	}
}

// What the cache denies, Redis would deny at the same time, for any takes and refunds of
// this process, any latency and any order of replies.
func TestCacheNeverDeniesWhatRedisAdmits(t *testing.T) {
	limits := []gcra.Limit{gcra.PerSecond(10), gcra.PerSecond(2).WithBurst(4), gcra.PerMinute(20), {Count: 3, Per: 700 * time.Millisecond, Burst: 1}}
	denied := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newSimulation()
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
				q := w.request(charges, refund)
				w.denials.beforeSend(q)
				w.inFlight = append(w.inFlight, &sentRequest{request: q, sent: w.now})
			case 2, 3: // requests reach Redis
				for _, q := range w.inFlight {
					if !q.done && rapid.Bool().Draw(t, "arrives") {
						w.redis(q.request)
						q.done = true
					}
				}
			default: // replies arrive, and some are lost
				var rest []*sentRequest
				for _, q := range w.inFlight {
					if !rapid.Bool().Draw(t, "returns") {
						rest = append(rest, q)
						continue
					}
					if !q.done || rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
						q.err = context.DeadlineExceeded
					}
					w.denials.learn(q.request, q.sent)
				}
				w.inFlight = rest
			}
		}
	})
	if denied == 0 {
		t.Error("got no cached denial; want some, or nothing is tested")
	}
}

// RetryAfter of a cached denial includes the latency of the call by which the TAT was
// learned, so that a client that obeys it is allowed.
func TestCachedRetryAfterIsNotTooShort(t *testing.T) {
	w := newSimulation()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take := w.request(c, false)
	sent := w.now
	w.now += tat.Ticks(20 * time.Millisecond)
	w.redis(take)
	w.now += tat.Ticks(5 * time.Millisecond)
	w.denials.learn(take, sent)
	if !w.denies(c) {
		t.Fatal("the cache does not deny although the bucket is empty")
	}
	exact := time.Hour - 5*time.Millisecond
	if got := c[0].Result.RetryAfter; got < exact || got > exact+21*time.Millisecond {
		t.Errorf("got RetryAfter %v; want %v to 21ms more", got, exact)
	}
}

// A reset is for all processes. The one that made it sees it at once, another that
// has cached a denial after the default DenialTTL of 1 s.
func TestResetIsSeenAfterDenialTTL(t *testing.T) {
	client := redistest.Any(t)
	now := time.Now()
	var stores [2]*Store
	for i := range stores {
		var err error
		if stores[i], err = New(client, Config{Timeout: 20 * time.Second}); err != nil {
			t.Fatal(err)
		}
		stores[i].SetClock(func() time.Time { return now })
	}
	ours, other := stores[0], stores[1]
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: gcra.PerHour(2), Cost: 1}
	allows := func(s *Store) bool { return gcratest.MustTake(t, s, charge)[0].Result.Allowed }
	for range 2 {
		allows(ours)
	}
	if allows(ours) || allows(other) {
		t.Fatal("the third of 2 is allowed; want a denial, which is then cached")
	}
	if err := gcra.Reset(t.Context(), ours, gcra.Charge{Subject: "s", Policy: "p", Limit: charge.Limit}); err != nil {
		t.Fatal(err)
	}
	if !allows(ours) {
		t.Error("after the reset, here: denied; want allowed")
	}
	for _, step := range []struct {
		passed time.Duration
		want   bool
	}{{0, false}, {900 * time.Millisecond, false}, {101 * time.Millisecond, true}} {
		now = now.Add(step.passed)
		if got := allows(other); got != step.want {
			t.Errorf("%v later, elsewhere: got allowed %v; want %v", step.passed, got, step.want)
		}
	}
}

// A reply that arrives after that of a later refund is not learned.
func TestCacheIgnoresRepliesFromBeforeARefund(t *testing.T) {
	w := newSimulation()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take, sent := w.request(c, false), w.now
	w.redis(take) // its reply is late

	w.now++
	refund := w.request(c, true)
	w.denials.beforeSend(refund)
	w.redis(refund)
	w.now++
	w.denials.learn(refund, w.now-1)

	w.now++
	w.denials.learn(take, sent)
	if w.denies(c) {
		t.Error("the cache denies after a refund")
	}
}

// The process that refunds has no cached denial afterwards.
func TestCacheFollowsOwnRefund(t *testing.T) {
	w := newSimulation()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take := w.request(c, false)
	w.redis(take)
	w.denials.learn(take, w.now)
	if !w.denies(c) {
		t.Fatal("the cache does not deny although the bucket is empty")
	}
	for _, lost := range []bool{false, true} {
		w.now++
		refund := w.request(c, true)
		w.denials.beforeSend(refund)
		w.redis(refund)
		if lost {
			refund.err = context.DeadlineExceeded
		}
		w.denials.learn(refund, w.now)
		if w.denies(c) {
			t.Errorf("the cache denies after a refund (its reply lost: %v)", lost)
		}
	}
}

// What the local store has granted and Redis does not know denies until it is charged, also
// without a denial cache.
func TestUnreportedDenies(t *testing.T) {
	w := newSimulation()
	s := &Store{denials: w.denials, clock: w.denials.clock}
	s.reporter.running = true // the test reports nothing
	w.denials.grants, w.denials.ttl = &s.reporter.grants, 0
	charges := []gcra.Charge{{Subject: "s", Policy: "p", Limit: gcra.PerHour(10), Cost: 1}}
	q := w.request(charges, false)
	w.redis(q)
	w.denials.learn(q, w.now)
	for range 20 {
		if _, err := s.Local(1).Take(t.Context(), charges); err != nil {
			t.Fatal(err)
		}
	}
	if charges[0].Result.Allowed {
		t.Fatal("the local store allows 20 of 10")
	}
	w.now += tat.Ticks(time.Second)
	q = w.request(charges, false)
	w.redis(q) // an answer that does not know of that
	w.denials.learn(q, w.now)
	if !w.denies(charges) {
		t.Error("Redis answers without that, and the request passes; want it denied")
	}
}
