package gcra_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
)

// In any interval of length D at most B + D/T units are admitted; with a queue,
// in any interval of the moments at which they are let in.
func TestBoundOverEveryInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		unit := int64(gcratest.Emission(limit).Int64())
		m := newBench()
		now, total := int64(0), int64(0)
		head := int64(0) // the smallest of total*T - now over all moments before an admission
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := gcratest.Pause(t, limit)
			m.advance(d)
			now += int64(d / gcratest.Tick)
			if x := total*unit - now; i == 0 || x < head {
				head = x
			}
			c := gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")}
			if m.take(t, c).Allowed {
				total += c.Cost
			}
			if got, most := total*unit-now-head, gcratest.Burst(limit)*unit; got > most {
				t.Fatalf("%v: admitted %d ticks' worth more than the time that has passed; want at most %d", limit, got, most)
			}
		}
	})
}

// Whoever is refused passes after RetryAfter and not a gcratest.Tick before, and the
// refusal has changed nothing.
func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newBench()
		c := gcra.Charge{Limit: limit, Cost: 1}
		if rapid.Bool().Draw(t, "queues") {
			c.MaxDelay = gcratest.Pause(t, limit)
			c.MaxWait = gcratest.Pause(t, limit)
		}
		for m.take(t, c).Allowed {
			m.advance(gcratest.Pause(t, limit) / 8)
		}
		c.Cost = rapid.Int64Range(1, gcratest.Burst(limit)).Draw(t, "cost")
		r := m.take(t, c)
		if r.Allowed || r.Never || r.RetryAfter <= 0 {
			t.Fatalf("%+v on an empty bucket: got %+v; want a refusal with RetryAfter", c, r)
		}
		if again := m.take(t, c); again != r {
			t.Fatalf("%+v refused twice: got %+v, then %+v; want the same", c, r, again)
		}
		m.advance(r.RetryAfter - gcratest.Tick)
		if early := m.take(t, c); early.Allowed || early.RetryAfter != gcratest.Tick {
			t.Fatalf("%+v, a gcratest.Tick before %v has passed: got %+v; want refused, %v to go", c, r.RetryAfter, early, gcratest.Tick)
		}
		m.advance(gcratest.Tick)
		if late := m.take(t, c); !late.Allowed {
			t.Fatalf("%+v, after %v: got %+v; want allowed", c, r.RetryAfter, late)
		}
	})
}

// Remaining is between 0 and B. While no time passes it never rises, and falls
// by exactly the cost of what is admitted. The TAT never goes back.
func TestRemainingCountsDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newBench()
		left, tat, now := gcratest.Burst(limit), time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			d := gcratest.Pause(t, limit)
			now += d
			m.advance(d)
			c := gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 2).Draw(t, "cost")}
			before := m.take(t, gcra.Charge{Limit: limit})
			r := m.take(t, c)
			want := before.Remaining
			if r.Allowed {
				want -= c.Cost
			}
			if r.Remaining != want || r.Remaining < 0 || r.Remaining > gcratest.Burst(limit) {
				t.Fatalf("%+v: got %d remaining; want %d of %d", c, r.Remaining, want, gcratest.Burst(limit))
			}
			if d == 0 && before.Remaining != left {
				t.Fatalf("without time passing %d remaining became %d", left, before.Remaining)
			}
			if now+r.ResetAfter < tat {
				t.Fatalf("%+v: the bucket would have been full at %v, is now at %v", c, tat, now+r.ResetAfter)
			}
			left, tat = r.Remaining, now+r.ResetAfter
		}
	})
}

// After a change of limits nobody waits longer than the new limit takes to
// refill, and what its first refusal says is kept.
func TestChangedLimitIsFollowed(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		before, after := gcratest.AnyLimit().Draw(t, "before"), gcratest.AnyLimit().Draw(t, "after")
		m := newBench()
		for m.take(t, gcra.Charge{Limit: before, Cost: 1}).Allowed {
		}
		c := gcra.Charge{Limit: after, Cost: rapid.Int64Range(1, gcratest.Burst(after)).Draw(t, "cost")}
		refill := time.Duration(gcratest.Emission(after).Int64()*gcratest.Burst(after)) * gcratest.Tick
		r := m.take(t, c)
		if r.Never || r.RetryAfter > refill || r.ResetAfter > refill {
			t.Fatalf("from %v to %v: got %+v; want all of it within %v", before, after, r, refill)
		}
		m.advance(r.RetryAfter)
		if !r.Allowed && !m.take(t, c).Allowed {
			t.Fatalf("from %v to %v: refused again after %v", before, after, r.RetryAfter)
		}
	})
}

// A peek and a charge that can never pass leave the bucket as it was.
func TestPeekAndNeverWriteNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newBench()
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			m.take(t, gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")})
			m.advance(gcratest.Pause(t, limit))
		}
		peek := gcra.Charge{Limit: limit}
		before := m.take(t, peek)
		if !before.Allowed || before.Never || before.RetryAfter != 0 || before.Delay != 0 {
			t.Fatalf("a peek: got %+v; want it allowed", before)
		}
		over := gcra.Charge{Limit: limit, Cost: rapid.Int64Min(gcratest.Burst(limit)+1).Draw(t, "cost above the burst")}
		if r := m.take(t, over); !r.Never || r.Allowed || r.RetryAfter != 0 || r.Remaining != before.Remaining || r.ResetAfter != before.ResetAfter {
			t.Fatalf("%+v: got %+v; want never, and the state as in %+v", over, r, before)
		}
		if after := m.take(t, peek); after != before {
			t.Fatalf("after a peek and a charge of %d: got %+v; want %+v", over.Cost, after, before)
		}
	})
}

// What is spent and refunded is as if it had not been spent.
func TestRefundUndoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newBench()
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			m.take(t, gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")})
			m.advance(gcratest.Pause(t, limit))
		}
		before := m.take(t, gcra.Charge{Limit: limit})
		charges := []gcra.Charge{{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")}}
		if _, err := m.Take(t.Context(), charges); err != nil {
			t.Fatal(err)
		}
		if !charges[0].Result.Allowed {
			return
		}
		if err := m.Refund(t.Context(), charges); err != nil {
			t.Fatal(err)
		}
		if r := charges[0].Result; r != before {
			t.Fatalf("after the refund of %d: got %+v; want %+v", charges[0].Cost, r, before)
		}
	})
}
