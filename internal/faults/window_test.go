package faults

import (
	"cmp"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// call is a request that was allowed, or with negative units a refund. When it took
// effect is not known: at some moment from begin to end, by one clock.
type call struct {
	begin, end time.Duration
	units      int64
}

// excess is how many units more than the bound, Burst + D·Count/Per, the calls have
// taken in the worst window. A window has the charges that lie in it as a whole, and
// the refunds of which any part lies in it: so it is never too strict. Where all is
// well the result is at most 0. A quota has no refill.
//
// One sweep over the times keeps what each window that is open has taken, less what
// has refilled. All windows that begin before the oldest call under way will see the
// same from then on, so only the worst of them is kept.
func excess(calls []call, limit gcra.Limit) float64 {
	const opens, closes, refunds, refunded = 0, 2, 1, 3 // in this order at one time
	type event struct {
		at   time.Duration
		kind int
		call
	}
	var events []event
	for _, c := range calls {
		if c.units >= 0 {
			events = append(events, event{c.begin, opens, c}, event{c.end, closes, c})
		} else {
			events = append(events, event{c.begin, refunds, c}, event{c.end, refunded, c})
		}
	}
	slices.SortFunc(events, func(a, b event) int { return cmp.Or(cmp.Compare(a.at, b.at), cmp.Compare(a.kind, b.kind)) })

	perTime, burst := 0.0, float64(limit.Count) // in units a nanosecond
	if !limit.IsQuota() {
		perTime = float64(limit.Count) / float64(limit.Per)
		burst = float64(cmp.Or(limit.Burst, limit.Count))
	}
	type window struct {
		begin time.Duration
		taken float64 // units, and what refilled until begin
	}
	var windows []window
	var underWay []time.Duration // the begins of charges that have not ended, in order
	refunding, worst := 0.0, math.Inf(-1)
	for _, e := range events {
		units := float64(e.units)
		switch e.kind {
		case opens:
			windows = append(windows, window{e.at, float64(e.at)*perTime + refunding})
			underWay = append(underWay, e.begin)
		case refunds:
			for i := range windows {
				windows[i].taken += units
			}
			refunding += units
		case refunded:
			refunding -= units
		case closes:
			now := burst + float64(e.at)*perTime
			for i := range windows {
				if windows[i].begin <= e.begin {
					windows[i].taken += units
				}
				worst = max(worst, windows[i].taken-now)
			}
			i, _ := slices.BinarySearch(underWay, e.begin)
			underWay = slices.Delete(underWay, i, i+1)
			oldest := e.at
			if len(underWay) > 0 {
				oldest = underWay[0]
			}
			keep := 0
			for keep+1 < len(windows) && windows[keep+1].begin <= oldest {
				keep++
				windows[keep].taken = max(windows[keep].taken, windows[keep-1].taken)
			}
			windows = slices.Delete(windows, 0, keep)
		}
	}
	return worst
}

// simpleExcess looks at every window.
func simpleExcess(calls []call, limit gcra.Limit) float64 {
	worst := math.Inf(-1)
	for _, first := range calls {
		for _, last := range calls {
			if first.units < 0 || last.units < 0 || last.end < first.begin {
				continue
			}
			sum := int64(0)
			for _, c := range calls {
				if c.units < 0 && c.begin <= last.end && c.end >= first.begin || c.units >= 0 && c.begin >= first.begin && c.end <= last.end {
					sum += c.units
				}
			}
			refill := float64(last.end-first.begin) * float64(limit.Count) / float64(limit.Per)
			worst = max(worst, float64(sum)-float64(limit.Burst)-refill)
		}
	}
	return worst
}

func TestExcess(t *testing.T) {
	limit := gcra.PerSecond(10).WithBurst(5)
	ms := time.Millisecond
	for name, test := range map[string]struct {
		calls []call
		want  float64
	}{
		"a burst":                        {slices.Repeat([]call{{0, 0, 1}}, 5), 0},
		"one more":                       {slices.Repeat([]call{{0, 0, 1}}, 6), 1},
		"one more, and its refill":       {append(slices.Repeat([]call{{0, 0, 1}}, 5), call{100 * ms, 100 * ms, 1}), 0},
		"that may have come 100 ms late": {append(slices.Repeat([]call{{0, 0, 1}}, 5), call{0, 100 * ms, 1}), 0},
		"a refund":                       {[]call{{0, 0, 5}, {0, ms, -5}, {ms, ms, 5}}, -0.01},
		"a refund that comes too late":   {[]call{{0, 0, 5}, {ms, ms, 5}, {2 * ms, 3 * ms, -5}}, 4.99},
		"a window after the refund":      {[]call{{0, 0, 5}, {ms, ms, -5}, {2 * ms, 2 * ms, 7}}, 2},
	} {
		if got := excess(test.calls, limit); math.Abs(got-test.want) > 1e-6 {
			t.Errorf("%s: got %v; want %v", name, got, test.want)
		}
	}
	quota := gcra.Quota(3, gcra.Daily)
	if got := excess([]call{{0, 0, 2}, {time.Hour, time.Hour, 2}}, quota); got != 1 {
		t.Errorf("4 of a quota of 3: got %v; want 1", got)
	}
}

// The sweep finds what looking at every window finds.
func TestExcessIsThatOfTheWorstWindow(t *testing.T) {
	for seed := range uint64(2000) {
		rnd := rand.New(rand.NewPCG(seed, 0))
		limit := gcra.PerSecond(1 + rnd.Int64N(20)).WithBurst(1 + rnd.Int64N(8))
		calls := make([]call, 1+rnd.IntN(25))
		for i := range calls {
			begin := time.Duration(rnd.Int64N(2000)) * time.Millisecond
			calls[i] = call{begin, begin + time.Duration(rnd.Int64N(300))*time.Millisecond, 1 + rnd.Int64N(4)}
			if rnd.IntN(5) == 0 {
				calls[i].units *= -1
			}
		}
		got, want := excess(calls, limit), simpleExcess(calls, limit)
		if math.Abs(got-want) > 1e-3 && !(math.IsInf(want, -1) && got < 0) {
			t.Fatalf("seed %d, %v, %v: got %v; want %v", seed, limit, fmt.Sprint(calls), got, want)
		}
	}
}
