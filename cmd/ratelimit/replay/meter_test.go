package replay

import (
	"fmt"
	"math/rand/v2"
	"net/url"
	"slices"
	"testing"
	"time"
	"unsafe"

	"pgregory.net/rapid"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// crowd is traffic of very different subjects: steady, in bursts, some far too fast.
func crowd(seed uint64, subjects int) (entries []entry) {
	chance := rand.New(rand.NewPCG(seed, 1))
	start := time.Date(2026, 11, 20, 8, 0, 0, 0, time.UTC).UnixMicro()
	path := &url.URL{Path: "/"}

	for n := range subjects {
		at := start + chance.Int64N(60e6)
		pause := int64(1e5) << chance.IntN(10) // up to a minute between two bursts
		burst := 1 + chance.IntN(1+chance.IntN(12))

		for range 1 + chance.IntN(8) {
			for range burst {
				entries = append(entries, entry{at: at, client: fmt.Sprintf("192.0.%d.%d", n/250, n%250), method: "GET", url: path})
				at += chance.Int64N(3e5) * int64(chance.IntN(2))
			}
			at += chance.Int64N(2 * pause)
		}
	}

	slices.SortStableFunc(entries, func(a, b entry) int { return int(min(max(a.at-b.at, -1), 1)) })
	return entries
}

// replayed returns the summary of one policy's only meter.
func replayed(t rapidOrTest, dir string, policy string, entries []entry, share float64) summary {
	t.Helper()
	p, err := newPlayer(writeIn(t, dir, "policies: [{name: a, key: client, "+policy+"}]"), new(funcs))
	if err != nil {
		t.Fatal(err)
	}
	for i := range entries {
		p.play(&entries[i])
	}
	if len(p.tallies[0].meters) != 1 {
		t.Fatalf("%s: got %d meters; want 1", policy, len(p.tallies[0].meters))
	}
	return p.tallies[0].meters[0].summarize(share)
}

// A suggested limit, replayed, denies something to no more than the requested share of
// subjects. A burst of any size denies something to exactly the subjects that are reported
// to need more.
func TestSuggestionsHold(t *testing.T) {
	dir := t.TempDir()
	rapid.Check(t, func(t *rapid.T) {
		entries := crowd(rapid.Uint64().Draw(t, "seed"), rapid.IntRange(1, 40).Draw(t, "subjects"))
		share := rapid.SampledFrom([]float64{0, 0.01, 0.1, 0.5, 0.99}).Draw(t, "share")
		limit := rapid.SampledFrom([]gcra.Limit{
			gcra.PerMinute(30), gcra.PerMinute(7), gcra.PerSecond(3), gcra.PerHour(100), {Count: 700, Per: time.Minute, Burst: 3},
		}).Draw(t, "limit")
		rest := rapid.SampledFrom([]string{"", ", cost: 3", ", max_delay: 1s", ", cost: 2, max_delay: 5s"}).Draw(t, "rest")
		with := func(l gcra.Limit) summary {
			return replayed(t, dir, fmt.Sprintf("limit: %q", l)+rest, entries, share)
		}

		f := with(limit)

		for _, s := range []suggestion{f.suggested.sameRate, f.suggested.ownRate} {
			got := with(s.limit)
			if got.subjects != f.subjects || float64(got.denied) > share*float64(f.subjects) || got.denied > s.denied {
				t.Errorf("%v%s: suggests %v, denying something to at most %d of %d; got %d of %d; want at most a share of %v",
					limit, rest, s.limit, s.denied, f.subjects, got.denied, got.subjects, share)
			}
		}

		if f.suggested.sameRate.limit.Count != limit.Count || f.suggested.sameRate.limit.Per != limit.Per {
			t.Errorf("%v: suggests %v; want the same rate", limit, f.suggested.sameRate.limit)
		}

		for _, burst := range []int64{1, f.suggested.sameRate.limit.Burst - 1, f.suggested.sameRate.limit.Burst, 1 + f.suggested.sameRate.limit.Burst/2} {
			if burst < 3 && rest != "" || burst < 1 {
				continue // than which a request costs more
			}
			if got, want := with(limit.WithBurst(burst)).denied, above(f.bursts, burst); got != want {
				t.Errorf("%v%s, burst %d: got %d denied at least once; want %d", limit, rest, burst, got, want)
			}
		}
	})
}

// atLeast never returns less than n units a period, to the tick, and little more.
func TestAtLeast(t *testing.T) {
	for _, per := range []time.Duration{time.Second, 10 * time.Second, time.Minute, time.Hour, 24 * time.Hour} {
		for _, n := range []int64{1, 2, 3, 6, 7, 11, 13, 60, 97, 700, 6004, 9999} {
			l := atLeast(n, per)
			if err := l.Validate(); err != nil {
				t.Errorf("%d per %v: %v", n, per, err)
				continue
			}
			if got := l.Interval() * time.Duration(n); got > per || l.Count > n+n/1000+1 {
				t.Errorf("%d per %v: got %v, %d units in %v; want as many in at most %v", n, per, l, n, got, per)
			}
		}
	}
	if l := atLeast(20_000_000, time.Second); l.Validate() == nil {
		t.Errorf("got %v for 20,000,000 a second; want a limit that is not valid", l)
	}
}

// The state of a subject in a meter, step by step.
func TestMeter(t *testing.T) {
	type step struct{ second, cost int64 }
	for _, c := range []struct {
		limit       gcra.Limit
		delay       time.Duration
		steps       []step
		burst, most int64
	}{
		{gcra.PerMinute(60), 0, []step{{0, 1}}, 1, 1},
		{gcra.PerMinute(60), 0, []step{{0, 1}, {1, 1}, {2, 1}}, 1, 3}, // as fast as it refills
		{gcra.PerMinute(60), 0, []step{{0, 1}, {0, 1}, {0, 1}, {1, 1}}, 3, 4},
		{gcra.PerMinute(30), 0, []step{{0, 1}, {1, 1}, {2, 1}, {3, 1}}, 3, 4}, // half as fast: 1, 1.5, 2, 2.5 units in debt
		{gcra.PerMinute(60), 0, []step{{59, 3}, {61, 3}}, 4, 3},               // two minutes of the clock
		{gcra.PerMinute(60), 0, []step{{0, 5}, {100, 2}}, 5, 5},
		{gcra.PerMinute(60), 0, []step{{0, 0}, {0, 0}}, 0, 0}, // peeks
		{gcra.PerMinute(60), 2 * time.Second, []step{{0, 1}, {0, 1}, {0, 1}, {0, 1}}, 2, 4},
		{gcra.PerMinute(60), 9 * time.Second, []step{{0, 3}}, 3, 3}, // no delay helps a cost above the burst
		{gcra.PerDay(1), 0, []step{{0, 1 << 40}, {1, 1 << 62}}, maxDebt/int64(gcra.PerDay(1).Interval()/tick) + 1, 1<<32 - 1},
	} {
		room := 1
		m := newMeter(c.limit, c.delay, &room)
		for _, s := range c.steps {
			m.add("x", 1, (1_795_132_800+s.second)*1e6, s.cost, false)
		}

		f := m.summarize(0)
		if f.subjects != 1 || f.most[0] != c.most || f.bursts[0] != c.burst {
			t.Errorf("%v, %v: got a burst of %v, %v in a period; want %d, %d", c.limit, c.steps, f.bursts, f.most, c.burst, c.most)
		}
	}
}

// Meters keep a bounded number of subjects, in little memory, and count the requests of
// others.
func TestMeterIsBounded(t *testing.T) {
	if size := unsafe.Sizeof(subject{}); size > 40 {
		t.Errorf("a subject has %d bytes; want at most 40", size)
	}

	room := 5000
	a, b := newMeter(gcra.PerMinute(1), 0, &room), newMeter(gcra.PerMinute(2), 0, &room)
	for hash := range uint64(4000) {
		a.add("x", hash, 1, 1, hash%2 == 0)
		a.add("x", hash, 2, 1, false)
		b.add("x", hash, 1, 1, false)
	}

	fa, fb := a.summarize(0), b.summarize(0)
	if fa.subjects+fb.subjects != 5000 || fa.dropped+fb.dropped != 3*4000-2*int64(fa.subjects)-int64(fb.subjects) {
		t.Errorf("got %d and %d subjects, %d and %d requests of others", fa.subjects, fb.subjects, fa.dropped, fb.dropped)
	}
	if fa.denied != fa.subjects/2 {
		t.Errorf("got %d of %d denied at least once; want half", fa.denied, fa.subjects)
	}
}

// rapidOrTest is what *testing.T and *rapid.T have in common.
type rapidOrTest interface {
	Helper()
	Fatal(args ...any)
	Fatalf(format string, args ...any)
}
