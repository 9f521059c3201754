package gcra_test

import (
	"testing"

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
