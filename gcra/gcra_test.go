package gcra_test

import (
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
)

// Any interval of length D admits at most B + D/T units.
func TestBoundOverEveryInterval(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		unit := gcratest.Emission(limit).Int64()
		m := newStopped()
		now, total := int64(0), int64(0)
		least := int64(0) // of total*T - now before an admission
		for i := range rapid.IntRange(1, 60).Draw(t, "steps") {
			d := gcratest.Pause(t, limit)
			m.advance(d)
			now += int64(d / gcratest.Tick)
			if x := total*unit - now; i == 0 || x < least {
				least = x
			}

			c := gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")}
			if m.take(t, c).Allowed {
				total += c.Cost
			}
			if got, most := total*unit-now-least, limit.Capacity()*unit; got > most {
				t.Fatalf("%v: admitted units of %d ticks more than have passed; want at most %d", limit, got, most)
			}
		}
	})
}

// A denied charge is allowed after RetryAfter and not a tick before, and a denial
// changes nothing.
func TestRetryAfterIsExact(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newStopped()
		c := gcra.Charge{Limit: limit, Cost: 1}
		if rapid.Bool().Draw(t, "queues") {
			c.MaxDelay = gcratest.Pause(t, limit)
			c.MaxWait = gcratest.Pause(t, limit)
		}

		for m.take(t, c).Allowed {
			m.advance(gcratest.Pause(t, limit) / 8)
		}

		c.Cost = rapid.Int64Range(1, limit.Capacity()).Draw(t, "cost")
		r := m.take(t, c)
		if r.Allowed || r.Never || r.RetryAfter <= 0 {
			t.Fatalf("%+v on an empty bucket: got %+v; want a denial with RetryAfter", c, r)
		}
		if again := m.take(t, c); again != r {
			t.Fatalf("%+v denied twice: got %+v, then %+v; want the same", c, r, again)
		}

		m.advance(r.RetryAfter - gcratest.Tick)
		if early := m.take(t, c); early.Allowed || early.RetryAfter != gcratest.Tick {
			t.Fatalf("%+v, a tick before %v has passed: got %+v; want denied, with RetryAfter %v", c, r.RetryAfter, early, gcratest.Tick)
		}
		m.advance(gcratest.Tick)
		if late := m.take(t, c); !late.Allowed {
			t.Fatalf("%+v, after %v: got %+v; want allowed", c, r.RetryAfter, late)
		}
	})
}

// Remaining is between 0 and B, and falls by exactly the cost of each admission. It
// does not rise while no time passes. The TAT never goes back.
func TestRemainingCountsDown(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newStopped()
		left, tat, now := limit.Capacity(), time.Duration(0), time.Duration(0)
		for range rapid.IntRange(1, 40).Draw(t, "steps") {
			d := gcratest.Pause(t, limit)
			now += d
			m.advance(d)
			c := gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 2).Draw(t, "cost"), Peek: rapid.Bool().Draw(t, "peek")}
			before := m.take(t, gcra.Charge{Limit: limit, Peek: true})
			r := m.take(t, c)
			want := before.Remaining
			if r.Allowed && !c.Peek {
				want -= c.Cost
			}

			if r.Remaining != want || r.Remaining < 0 || r.Remaining > limit.Capacity() {
				t.Fatalf("%+v: got %d remaining; want %d of %d", c, r.Remaining, want, limit.Capacity())
			}
			if d == 0 && before.Remaining != left {
				t.Fatalf("no time has passed, and %d remaining became %d", left, before.Remaining)
			}

			if now+r.ResetAfter < tat {
				t.Fatalf("%+v: the bucket was to be full at %v, and now at %v", c, tat, now+r.ResetAfter)
			}
			left, tat = r.Remaining, now+r.ResetAfter
		}
	})
}

// A peek and a charge above the burst leave the bucket as it was.
func TestPeekAndNeverWriteNothing(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newStopped()
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			m.take(t, gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")})
			m.advance(gcratest.Pause(t, limit))
		}

		peek := gcra.Charge{Limit: limit, Peek: true}
		before := m.take(t, peek)
		if !before.Allowed || before.Never || before.RetryAfter != 0 || before.Delay != 0 {
			t.Fatalf("a peek: got %+v; want allowed", before)
		}

		over := gcra.Charge{Limit: limit, Cost: rapid.Int64Min(limit.Capacity()+1).Draw(t, "cost above the burst")}
		if r := m.take(t, over); !r.Never || r.Allowed || r.RetryAfter != 0 || r.Remaining != before.Remaining || r.ResetAfter != before.ResetAfter {
			t.Fatalf("%+v: got %+v; want Never, and the state of %+v", over, r, before)
		}
		if after := m.take(t, peek); after != before {
			t.Fatalf("after a peek and a charge of %d: got %+v; want %+v", over.Cost, after, before)
		}
	})
}

// Take and Refund of the same charges leave the bucket as it was.
func TestRefundUndoes(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		limit := gcratest.AnyLimit().Draw(t, "limit")
		m := newStopped()
		for range rapid.IntRange(0, 5).Draw(t, "steps") {
			m.take(t, gcra.Charge{Limit: limit, Cost: gcratest.CostUpTo(limit, 0).Draw(t, "cost")})
			m.advance(gcratest.Pause(t, limit))
		}

		before := m.take(t, gcra.Charge{Limit: limit, Peek: true})
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
