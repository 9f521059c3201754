package gcra_test

import (
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// clock is a clock that moves only by advance.
type clock struct{ ns atomic.Int64 }

func (c *clock) now() time.Time          { return time.Unix(1_800_000_000, c.ns.Load()) }
func (c *clock) advance(d time.Duration) { c.ns.Add(int64(d)) }

func TestMemoryContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		c := new(clock)
		return storetest.Backend{Store: gcra.NewMemory(gcra.MemoryConfig{Now: c.now}), Advance: c.advance, Exact: true}
	})
}

// Without a MemoryConfig, and with the zero one, a Memory limits in real time.
func TestNewMemory(t *testing.T) {
	for name, m := range map[string]*gcra.Memory{"none": gcra.NewMemory(), "zero": gcra.NewMemory(gcra.MemoryConfig{})} {
		limit := gcra.PerHour(2)
		for i, want := range []bool{true, true, false} {
			r, err := gcra.Take(t.Context(), m, gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1})
			if err != nil || r.Allowed != want {
				t.Errorf("%s, call %d: got %+v, %v; want allowed %v", name, i, r, err, want)
			}
		}
	}
}

// Without Now, Memory uses the monotonic part of time.Now.
func TestMemoryDefaultClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		take := func() gcra.Result {
			r, err := gcra.Take(t.Context(), m, gcra.Charge{Limit: gcra.PerSecond(2), Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			return r
		}

		take()
		take()
		r := take()
		if want := (gcra.Result{RetryAfter: time.Second / 2, ResetAfter: time.Second}); r != want {
			t.Fatalf("got %+v; want %+v", r, want)
		}

		time.Sleep(r.RetryAfter - 1)
		if r := take(); r.Allowed {
			t.Errorf("a nanosecond early: got %+v; want denied", r)
		}
		time.Sleep(time.Nanosecond)
		if r := take(); !r.Allowed {
			t.Errorf("after RetryAfter: got %+v; want allowed", r)
		}
	})
}

// If a wall clock is set, by years and in either direction, no bucket denies for
// longer than it takes to refill.
func TestMemoryClockSet(t *testing.T) {
	for _, to := range []time.Time{
		{}, time.Unix(0, 0), time.Unix(1<<35, 0), time.Date(1601, 1, 1, 0, 0, 0, 0, time.UTC), time.Date(2262, 1, 1, 0, 0, 0, 0, time.UTC),
	} {
		now := time.Unix(1_800_000_000, 0)
		m := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
		c := gcra.Charge{Limit: gcra.PerSecond(2), Cost: 2}
		if r, err := gcra.Take(t.Context(), m, c); err != nil || !r.Allowed {
			t.Fatalf("got %+v, %v; want allowed", r, err)
		}

		now = to
		r, err := gcra.Take(t.Context(), m, c)
		if err != nil || r.RetryAfter > time.Second {
			t.Errorf("set to %v: got %+v, %v; want RetryAfter at most 1s", to, r, err)
		}
		now = now.Add(r.RetryAfter)
		if again, err := gcra.Take(t.Context(), m, c); !r.Allowed && !again.Allowed {
			t.Errorf("set to %v, after %v: got %+v, %v; want allowed", to, r.RetryAfter, again, err)
		}
	}
}

// The first Capacity keys have a bucket each. Later keys share one for each policy,
// until they find the slot of a key whose bucket is full again.
func TestMemoryCapacity(t *testing.T) {
	for _, capacity := range []int{1, 2, 7, 100, 1000} {
		t.Run(fmt.Sprint(capacity), func(t *testing.T) {
			c := new(clock)
			m := gcra.NewMemory(gcra.MemoryConfig{Capacity: capacity, Now: c.now})
			take := func(subject, policy string) gcra.Result {
				r, err := gcra.Take(t.Context(), m, gcra.Charge{Subject: subject, Policy: policy, Limit: gcra.PerMinute(2), Cost: 1})
				if err != nil {
					t.Fatal(err)
				}
				return r
			}

			for round := range 2 {
				for i := range capacity {
					if r := take(fmt.Sprint("key ", i), "p"); !r.Allowed || r.Remaining != int64(1-round) {
						t.Fatalf("key %d of %d, call %d: got %+v; want %d remaining", i, capacity, round, r, 1-round)
					}
				}
			}

			// The table is full of keys in debt: new keys share a bucket.
			for i, want := range []bool{true, true, false, false} {
				if r := take(fmt.Sprint("new key ", i), "p"); r.Allowed != want {
					t.Errorf("new key %d: got %+v; want allowed %v", i, r, want)
				}
			}

			if r := take("new key", "q"); !r.Allowed {
				t.Errorf("a new key of another policy: got %+v; want allowed", r)
			}
			if r := take("key 0", "p"); r.Allowed {
				t.Errorf("a key whose bucket is empty: got %+v; want it still denied", r)
			}

			// All buckets are full again, so their slots are free. A call for a new key
			// looks at a few slots of a large table, so some keys share until a later call.
			c.advance(time.Minute + 100)
			late := 0
			for i := range capacity {
				for call, want := range []bool{true, true, false} {
					if r := take(fmt.Sprint("later ", i), "p"); r.Allowed != want {
						if late++; late > capacity/10 {
							t.Fatalf("later key %d, call %d: got %+v; want allowed %v", i, call, r, want)
						}
					}
				}
			}
		})
	}
}

// A flood of new keys stays limited if a policy has several limits: the smaller ones do not
// erase what the larger ones have counted.
func TestMemorySharedBucketsOfSeveralLimits(t *testing.T) {
	m := gcra.NewMemory(gcra.MemoryConfig{Capacity: 1, Now: new(clock).now})
	gcratest.MustTake(t, m, gcra.Charge{Subject: "held", Policy: "p", Limit: gcra.PerDay(1)})
	for _, limits := range [][2]gcra.Limit{
		{gcra.PerMinute(100), gcra.PerSecond(10)},
		{gcra.PerMinute(60), gcra.PerSecond(1)}, // of one T
	} {
		passed := int64(0)
		for i := range 1000 {
			r, err := gcra.Take(t.Context(), m, gcra.Charge{Subject: fmt.Sprint(i), Policy: limits[0].String(), Limit: limits[i%2]})
			if err != nil {
				t.Fatal(err)
			}
			passed += r.Taken
		}
		if want := limits[0].Capacity() + limits[1].Capacity(); passed != want {
			t.Errorf("%v: %d of 1,000 new keys passed; want %d", limits, passed, want)
		}
	}
}

// An admission that needs more slots than are left takes all or none, and charges
// without a slot go to the shared bucket.
func TestMemoryCapacityOfAnAdmission(t *testing.T) {
	c := new(clock)
	m := gcra.NewMemory(gcra.MemoryConfig{Capacity: 1, Now: c.now})
	limit := gcra.PerMinute(3)
	group := func(cost int64) []gcra.Charge {
		return []gcra.Charge{
			{Subject: "a", Policy: "p", Limit: limit, Cost: cost},
			{Subject: "b", Policy: "p", Limit: limit, Cost: cost}, // shared
			{Subject: "c", Policy: "p", Limit: limit, Cost: cost}, // shared
		}
	}

	for i, want := range [][]int64{{2, 2, 1}, {2, 1, 0}} {
		charges := group(1)
		if allowed, err := m.Take(t.Context(), charges); err != nil || allowed != (i == 0) {
			t.Fatalf("call %d: got %v, %v; want %v, nil", i, allowed, err, i == 0)
		}
		for j := range charges {
			if got := charges[j].Result.Remaining; got != want[j] {
				t.Errorf("call %d, charge %d: got %d remaining; want %d", i, j, got, want[j])
			}
		}
	}
}

// A decision on known keys allocates nothing.
func TestMemoryAllocatesNothing(t *testing.T) {
	race.Skip(t)

	m := gcra.NewMemory()
	ctx := t.Context()
	one := []gcra.Charge{{Subject: "ip:192.0.2.7", Policy: "burst", Limit: gcra.PerSecond(10), Cost: 1}}
	two := append(slices.Clone(one), gcra.Charge{Subject: "ip:192.0.2.7", Policy: "daily", Limit: gcra.PerDay(1000), Cost: 1})
	for name, f := range map[string]func() error{
		"one charge":  func() error { _, err := m.Take(ctx, one); return err },
		"two charges": func() error { _, err := m.Take(ctx, two); return err },
		"a refund":    func() error { return m.Refund(ctx, two) },
		"shorthand":   func() error { _, err := gcra.Take(ctx, m, one[0]); return err },
	} {
		var err error
		if got := testing.AllocsPerRun(100, func() { err = f() }); got > 0 || err != nil {
			t.Errorf("%s: got %v allocations, %v; want 0", name, got, err)
		}
	}
}

// BenchmarkTake is the shorthand on a known key. BenchmarkStore of package redisstore has it in Redis.
func BenchmarkTake(b *testing.B) {
	b.ReportAllocs()
	m := gcra.NewMemory()
	for b.Loop() {
		if r, err := gcra.Take(b.Context(), m, gcra.Charge{Subject: "s", Limit: gcra.PerSecond(1_000_000).WithBurst(1 << 40)}); err != nil || !r.Allowed {
			b.Fatalf("got %+v, %v; want allowed", r, err)
		}
	}
}

// With many policies and limits too, a decision on known keys allocates nothing.
func TestMemoryAllocatesNothingForManyLimits(t *testing.T) {
	for _, limits := range [][]gcra.Limit{
		{gcra.PerSecond(500_000), gcra.PerSecond(500_000)},
		{gcra.PerSecond(500_000), gcra.PerSecond(500_000).WithBurst(1_000_000), gcra.PerSecond(500_000).WithBurst(2_000_000)},
		slices.Repeat([]gcra.Limit{gcra.PerMinute(600_000), gcra.PerHour(600_000)}, 20),
	} {
		m := gcra.NewMemory()
		charges := make([]gcra.Charge, len(limits))
		take := func(subject string) {
			for i, l := range limits {
				charges[i] = gcra.Charge{Subject: subject, Policy: fmt.Sprint("p", i), Limit: l, Cost: 1}
			}
			for i := range charges {
				if _, err := m.Take(t.Context(), charges[i:i+1]); err != nil {
					t.Fatal(err)
				}
			}
		}

		for i := range 100 {
			subject := fmt.Sprint("k", i)
			take(subject)
			got := testing.AllocsPerRun(10, func() {
				for i := range charges {
					_, _ = m.Take(t.Context(), charges[i:i+1])
				}
			})
			if got > 0 {
				t.Fatalf("%d policies, %s: %v allocations; want none", len(limits), subject, got)
			}
		}
	}
}

// While the table fills, grows and reuses slots under many goroutines, every key is
// allowed exactly the burst.
func TestMemoryConcurrent(t *testing.T) {
	begin := time.Now()
	m := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return begin.Add(1000 * time.Since(begin)) }}) // slots are kept for 10 s
	const callers, keys, burst = 8, 3000, 2
	var passed [keys]atomic.Int64
	var wg sync.WaitGroup
	for caller := range callers {
		wg.Go(func() {
			for i := range keys {
				key := (i*7919 + caller*31) % keys
				charges := []gcra.Charge{
					{Subject: fmt.Sprint(key), Policy: "p", Limit: gcra.PerDay(burst), Cost: 1},
					{Subject: fmt.Sprint(caller, key), Policy: "brief", Limit: gcra.PerSecond(100_000), Cost: 1},
				}

				if caller%2 == 1 {
					charges = charges[:1] // takes no lock, beside callers with a lock
				}
				if _, err := m.Take(t.Context(), charges); err != nil {
					t.Error(err)
				}
				if charges[0].Result.Allowed {
					passed[key].Add(1)
				}
			}
		})
	}

	wg.Wait()
	for key := range passed {
		if n := passed[key].Load(); n != burst {
			t.Fatalf("key %d: %d passed; want %d", key, n, burst)
		}
	}
}

// stopped is a Memory on a clock of its own.
type stopped struct {
	clock
	*gcra.Memory
}

func newStopped() *stopped {
	s := new(stopped)
	s.Memory = gcra.NewMemory(gcra.MemoryConfig{Now: s.now})
	return s
}

func (s *stopped) take(t *rapid.T, c gcra.Charge) gcra.Result {
	r, err := gcra.Take(t.Context(), s, c)
	if err != nil {
		t.Fatalf("%+v: %v", c, err)
	}
	return r
}

// Any sequence of calls, also with limits that change, has the results of the model.
func TestMemoryIsTheModel(t *testing.T) {
	race.Skip(t)

	rapid.Check(t, func(t *rapid.T) {
		limits := rapid.SliceOfN(rapid.OneOf(gcratest.AnyLimit(), gcratest.AnyQuota()), 1, 3).Draw(t, "limits")
		m := newStopped()
		model := gcratest.NewModel(m.now())
		for range rapid.IntRange(1, 30).Draw(t, "steps") {
			d := gcratest.Pause(t, limits[0])
			model.Advance(d)
			m.advance(d)
			gcratest.CheckSame(t, model, m, limits)
		}
	})
}

// While a charge waits between reading the clock and the TAT, time goes on and others
// fill the bucket. The late charge gives none of their debt back.
func TestMemoryLateCharge(t *testing.T) {
	limit := gcra.Limit{Count: 1, Per: time.Second, Burst: 3}
	for _, other := range []string{"", "other"} {
		start := time.Unix(1_800_000_000, 0)
		now, meanwhile := start, func() {}
		m := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time {
			read, f := now, meanwhile
			meanwhile = func() {}
			f()
			return read
		}})

		charge := gcra.Charge{Subject: "a", Policy: "p", Limit: limit, Cost: 3}
		gcratest.MustTake(t, m, charge)
		meanwhile = func() {
			now = start.Add(time.Minute)
			gcratest.MustTake(t, m, charge)
		}

		charges := []gcra.Charge{{Subject: "a", Policy: "p", Limit: limit, Cost: 1}}
		if other != "" {
			charges = append(charges, gcra.Charge{Subject: other, Policy: "p", Limit: limit, Cost: 1})
		}
		if allowed, err := m.Take(t.Context(), charges); allowed || err != nil {
			t.Errorf("with %q, the late charge: got %v, %v; want denied", other, allowed, err)
		}

		charge.Cost = 1
		if got := gcratest.MustTake(t, m, charge)[0].Result; got.Allowed || got.RetryAfter != time.Second {
			t.Errorf("with %q, afterwards: got %+v; want denied for a second", other, got)
		}
	}
}

// A peek or a refund of a key without a slot leaves the shared bucket as it is. Other
// keys have taken from it too.
func TestMemorySharedBucketIsNotRefunded(t *testing.T) {
	c := new(clock)
	m := gcra.NewMemory(gcra.MemoryConfig{Now: c.now, Capacity: 1})
	charge := func(subject string, cost int64) gcra.Charge {
		return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerHour(2), Cost: cost}
	}

	gcratest.MustTake(t, m, charge("first", 1))
	gcratest.MustTake(t, m, charge("second", 1)) // from the shared bucket
	if r, err := gcra.Peek(t.Context(), m, charge("third", 0)); err != nil || r.Remaining != 2 {
		t.Errorf("peek at a key that was never charged: got %+v, %v; want 2 left", r, err)
	}
	if err := m.Refund(t.Context(), []gcra.Charge{charge("second", 1)}); err != nil {
		t.Fatal(err)
	}

	for _, want := range []bool{true, false} {
		if got := gcratest.MustTake(t, m, charge("third", 1))[0].Result; got.Allowed != want {
			t.Errorf("after a refund, from the shared bucket of 2, of which 1 was taken: got %+v; want allowed %v", got, want)
		}
	}
}

// One subject puts no other into debt that shares its bucket.
func TestMemorySharedBucketHasNoDebt(t *testing.T) {
	c := new(clock)
	m := gcra.NewMemory(gcra.MemoryConfig{Now: c.now, Capacity: 1})
	charge := gcra.Charge{Subject: "first", Policy: "p", Limit: gcra.PerMinute(10), MaxDebt: 10_000}
	gcratest.MustTake(t, m, charge)

	late := charge
	late.Subject, late.Cost, late.Late = "second", 10_000, true
	if got := gcratest.MustTake(t, m, late)[0].Result; got.Taken != 10 {
		t.Errorf("late, from the shared bucket of 10: got %+v; want 10 taken", got)
	}
	charge.Subject = "third"
	if got := gcratest.MustTake(t, m, charge)[0].Result; got.Allowed || got.RetryAfter != 6*time.Second {
		t.Errorf("afterwards: got %+v; want a retry after 6s", got)
	}

	charge.Subject, late.Subject = "first", "first"
	if got := gcratest.MustTake(t, m, late)[0].Result; got.Taken != 10_000 {
		t.Errorf("late, from a bucket of its own: got %+v; want 10000 taken", got)
	}
}
