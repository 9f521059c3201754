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
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// world is a Redis with one clock, whose replies take their time and may
// overtake each other, and a denial cache that learns from them.
type world struct {
	now      int64
	tats     map[string]int64
	denials  *denialCache
	inFlight []*sentRequest
}

type sentRequest struct {
	*request
	sent int64
	run  bool // by Redis
}

func newWorld() *world {
	w := &world{tats: make(map[string]int64)}
	clock := buckets.NewClock(func() time.Time { return time.Unix(tat.Epoch, 0).Add(tat.Duration(w.now)) })
	w.denials = newDenialCache(clock, time.Second)
	return w
}

func (w *world) request(charges []gcra.Charge, refund bool) *request {
	ops := make([]op, len(charges))
	for i := range charges {
		if err := w.denials.prepare(&charges[i], refund, &ops[i].Op); err != nil {
			panic(err)
		}
		ops[i].key = charges[i].Subject
	}
	return newRequest(ops, refund)
}

func (w *world) denies(charges []gcra.Charge) bool {
	return w.denials.deny(w.request(charges, false).ops, charges)
}

// redis does with a request what take.lua does.
func (w *world) redis(q *request) {
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

// What the cache denies, Redis would deny at that moment, whatever this process
// takes and refunds, however long its calls take and in whatever order they are
// answered.
func TestCacheNeverDeniesWhatRedisAdmits(t *testing.T) {
	limits := []gcra.Limit{gcra.PerSecond(10), gcra.PerSecond(2).WithBurst(4), gcra.PerMinute(20), {Count: 3, Per: 700 * time.Millisecond, Burst: 1}}
	denied := 0
	rapid.Check(t, func(t *rapid.T) {
		w := newWorld()
		for range rapid.IntRange(1, 60).Draw(t, "steps") {
			w.now += rapid.Int64Range(0, tat.Ticks(300*time.Millisecond)).Draw(t, "pause")
			switch rapid.IntRange(0, 5).Draw(t, "what") {
			case 0, 1: // a caller comes
				var charges []gcra.Charge
				for i := range rapid.IntRange(1, 3).Draw(t, "charges") {
					p := rapid.IntRange(0, len(limits)-1).Draw(t, "policy")
					charges = append(charges, gcra.Charge{
						Subject:  fmt.Sprint("key", rapid.IntRange(0, 1).Draw(t, "subject"), p),
						Policy:   "p",
						Limit:    limits[p],
						Cost:     rapid.Int64Range(0, 4).Draw(t, "cost"),
						MaxDelay: time.Duration(rapid.IntRange(0, 1).Draw(t, "delay")) * 400 * time.Millisecond,
						Shadow:   i > 0 && rapid.Bool().Draw(t, "shadow"),
					})
				}
				refund := rapid.IntRange(0, 3).Draw(t, "refund") == 0
				if !refund && w.denies(charges) {
					denied++
					truth := w.request(charges, false)
					w.redis(truth)
					if truth.admitted {
						t.Fatalf("the cache denied %+v; Redis would have admitted", charges)
					}
					continue
				}
				q := w.request(charges, refund)
				w.denials.beforeSend(q)
				w.inFlight = append(w.inFlight, &sentRequest{request: q, sent: w.now})
			case 2, 3: // a call reaches Redis
				for _, q := range w.inFlight {
					if !q.run && rapid.Bool().Draw(t, "arrives") {
						w.redis(q.request)
						q.run = true
					}
				}
			default: // replies come back, some of them lost
				var rest []*sentRequest
				for _, q := range w.inFlight {
					if !rapid.Bool().Draw(t, "returns") {
						rest = append(rest, q)
						continue
					}
					if !q.run || rapid.IntRange(0, 9).Draw(t, "lost") == 0 {
						q.err = context.DeadlineExceeded
					}
					w.denials.learn(q.request, q.sent)
				}
				w.inFlight = rest
			}
		}
	})
	if denied == 0 {
		t.Error("the cache never denied anything: the property was not tested")
	}
}

// RetryAfter comes from before the call on the side of the decision and from
// after it on the side of the client, so that a client that obeys it passes.
func TestCachedRetryAfterIsNotTooShort(t *testing.T) {
	w := newWorld()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take := w.request(c, false)
	sent := w.now
	w.now += tat.Ticks(20 * time.Millisecond)
	w.redis(take)
	w.now += tat.Ticks(5 * time.Millisecond)
	w.denials.learn(take, sent)
	if !w.denies(c) {
		t.Fatal("the cache does not deny what it has seen taken")
	}
	truth := time.Hour - 5*time.Millisecond
	if got := c[0].Result.RetryAfter; got < truth || got > truth+21*time.Millisecond {
		t.Errorf("got retry after %v; want %v, or later by the 25ms of the call at most", got, truth)
	}
}

// A refund by another process is noticed after DenialTTL at the latest.
func TestRefundElsewhereIsSeenAfterDenialTTL(t *testing.T) {
	w := newWorld()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	for range 2 {
		q := w.request(c, false)
		w.redis(q)
		w.denials.learn(q, w.now)
	}
	delete(w.tats, "k") // another process resets the key
	for _, step := range []struct {
		after time.Duration
		want  bool
	}{{0, true}, {900 * time.Millisecond, true}, {1100 * time.Millisecond, false}} {
		w.now = tat.Ticks(step.after)
		if got := w.denies(c); got != step.want {
			t.Errorf("%v after the last answer the cache denies: %v; want %v", step.after, got, step.want)
		}
	}
}

// An answer that comes after that of a later refund says nothing of the bucket.
func TestCacheIgnoresAnswersFromBeforeARefund(t *testing.T) {
	w := newWorld()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take, sent := w.request(c, false), w.now
	w.redis(take) // its answer takes its time

	w.now++
	refund := w.request(c, true)
	w.denials.beforeSend(refund)
	w.redis(refund)
	w.now++
	w.denials.learn(refund, w.now-1)

	w.now++
	w.denials.learn(take, sent)
	if w.denies(c) {
		t.Error("the cache denies what was refunded")
	}
}

// A refund by this process opens the bucket at once.
func TestCacheFollowsOwnRefund(t *testing.T) {
	w := newWorld()
	c := []gcra.Charge{{Subject: "k", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}}
	take := w.request(c, false)
	w.redis(take)
	w.denials.learn(take, w.now)
	if !w.denies(c) {
		t.Fatal("the cache does not deny what it has seen taken")
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

// What is taken from the local store is not what Redis has said: when Redis
// answers again it is asked.
func TestLocalChargesAreNotCachedDenials(t *testing.T) {
	w := newWorld()
	charges := []gcra.Charge{{Subject: "s", Policy: "p", Limit: gcra.PerHour(10), Cost: 1}}
	q := w.request(charges, false)
	w.redis(q)
	w.denials.learn(q, w.now)
	for range 20 {
		if _, err := (local{w.denials}).Take(t.Context(), charges); err != nil {
			t.Fatal(err)
		}
	}
	if charges[0].Result.Allowed {
		t.Fatal("the local store admits 20 of 10")
	}
	if w.denies(charges) {
		t.Error("denied because of local charges; want Redis asked")
	}
}
