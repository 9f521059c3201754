package pacer

import (
	"container/heap"
	"fmt"
	"math/rand/v2"
	"net/http"
	"slices"
	"strconv"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// moment is when a caller does the next thing.
type moment struct {
	at     time.Duration
	caller int
	what   int // one of the below
}

const (
	hasSlept = iota
	isAtServer
	hasAnswer
)

type moments []moment

func (m moments) Len() int           { return len(m) }
func (m moments) Less(i, j int) bool { return m[i].at < m[j].at }
func (m moments) Swap(i, j int)      { m[i], m[j] = m[j], m[i] }
func (m *moments) Push(x any)        { *m = append(*m, x.(moment)) }
func (m *moments) Pop() any {
	old := *m
	x := old[len(old)-1]
	*m = old[:len(old)-1]
	return x
}

// crowd lets clients of some callers each call a full bucket without pause, in
// virtual time, and counts for each client what passed and was refused once the
// warm-up was over.
func crowd(t *testing.T, limit gcra.Limit, tell func(gcra.Result) http.Header, clients, callers int, warm, run time.Duration) (passed, refused []int) {
	t.Helper()
	const takes = 50 * time.Millisecond
	start := time.Unix(1_800_000_000, 0)
	now := start
	store := &gcra.Memory{Now: func() time.Time { return now }}
	random := rand.New(rand.NewPCG(1, 2))
	pacers := make([]Pacer, clients)
	for i := range pacers {
		pacers[i].Rand = random.Float64
	}
	passed, refused = make([]int, clients), make([]int, clients)
	results := make([]gcra.Result, clients*callers)
	var todo moments
	for c := range results {
		heap.Push(&todo, moment{pacers[c/callers].Next(now), c, hasSlept})
	}
	for {
		m := heap.Pop(&todo).(moment)
		if m.at > warm+run {
			return passed, refused
		}
		now = start.Add(m.at)
		client := m.caller / callers
		switch m.what {
		case hasSlept:
			if d := pacers[client].Again(now); d > 0 {
				heap.Push(&todo, moment{m.at + d, m.caller, hasSlept})
			} else {
				heap.Push(&todo, moment{m.at + takes/2, m.caller, isAtServer})
			}
		case isAtServer:
			r, err := gcra.Take(t.Context(), store, gcra.Charge{Subject: "all", Policy: "p", Limit: limit, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}
			results[m.caller] = r
			heap.Push(&todo, moment{m.at + takes/2, m.caller, hasAnswer})
		case hasAnswer:
			r, status := results[m.caller], http.StatusOK
			count := passed
			if !r.Allowed {
				status, count = http.StatusTooManyRequests, refused
			}
			if m.at > warm {
				count[client]++
			}
			pacers[client].Done(now, status, tell(r))
			heap.Push(&todo, moment{m.at + pacers[client].Next(now), m.caller, hasSlept})
		}
	}
}

func tellRemaining(r gcra.Result) http.Header {
	return http.Header{"Ratelimit-Remaining": {strconv.FormatInt(r.Remaining, 10)}}
}

func tellAll(limit gcra.Limit) func(gcra.Result) http.Header {
	return func(r gcra.Result) http.Header {
		h := tellRemaining(r)
		capacity := limit.Burst
		if capacity == 0 {
			capacity = limit.Count
		}
		h.Set("RateLimit-Limit", strconv.FormatInt(capacity, 10))
		h.Set("RateLimit-Policy", fmt.Sprintf("%d;w=%d", limit.Count, limit.Per/time.Second))
		if !r.Allowed {
			h.Set("Retry-After", strconv.FormatInt(int64((r.RetryAfter+time.Second-1)/time.Second), 10))
		}
		return h
	}
}

// Once settled, a crowd uses the limit, is hardly refused, and shares evenly.
// With remaining alone that holds for buckets much larger than the reserve; of
// the smaller ones it holds that nobody starves. The bounds are what was seen, with room: least used, most refused, and how
// many times as much the client with most has as the one with least.
func TestCrowd(t *testing.T) {
	type bounds struct{ used, refused, uneven float64 }
	for _, c := range []struct {
		limit              gcra.Limit
		clients, callers   int
		all, justRemaining bounds
	}{
		{gcra.PerHour(4500), 1, 1, bounds{0.99, 0, 1}, bounds{0.99, 0, 1}},
		{gcra.PerHour(4500), 2, 5, bounds{0.99, 0, 1.3}, bounds{0.99, 0, 1.3}},
		{gcra.PerHour(4500), 10, 5, bounds{0.99, 0.02, 2}, bounds{0.99, 0.02, 2}},
		{gcra.PerSecond(10), 1, 5, bounds{0.99, 0, 1}, bounds{0.99, 0, 1}},
		{gcra.PerSecond(10), 4, 5, bounds{0.97, 0.01, 1.3}, bounds{0.5, 0, 5}},
		{gcra.PerSecond(100), 2, 50, bounds{0.99, 0.01, 1.3}, bounds{0.99, 0.01, 1.7}},
		{gcra.PerSecond(100).WithBurst(20), 4, 10, bounds{0.97, 0.01, 1.6}, bounds{0.6, 0.01, 6}},
		{gcra.PerMinute(100).WithBurst(20), 4, 3, bounds{0.99, 0.01, 1.5}, bounds{0.99, 0.01, 1.5}},
		{gcra.PerSecond(1).WithBurst(1), 1, 3, bounds{0.95, 0, 1}, bounds{0.6, 0.15, 1}},
		{gcra.PerMinute(5), 2, 2, bounds{0.97, 0.05, 2}, bounds{0.7, 0.35, 3}},
	} {
		for _, mode := range []struct {
			name string
			tell func(gcra.Result) http.Header
			want bounds
		}{{"all fields", tellAll(c.limit), c.all}, {"remaining alone", tellRemaining, c.justRemaining}} {
			t.Run(fmt.Sprintf("%v/%dx%d/%s", c.limit, c.clients, c.callers, mode.name), func(t *testing.T) {
				perSecond := float64(c.limit.Count) / c.limit.Per.Seconds()
				run := min(20*time.Minute, time.Duration(10_000/perSecond)*time.Second)
				warm := 10 * time.Minute
				if perSecond > 20 {
					warm /= 2
				}
				passed, refused := crowd(t, c.limit, mode.tell, c.clients, c.callers, warm, run)
				through, back := 0, 0
				for i := range passed {
					through += passed[i]
					back += refused[i]
				}
				got := bounds{
					used:    float64(through) / (perSecond * run.Seconds()),
					refused: float64(back) / float64(through+back),
					uneven:  float64(slices.Max(passed)) / float64(slices.Min(passed)),
				}
				if got.used < mode.want.used || got.refused > mode.want.refused || got.uneven > mode.want.uneven {
					t.Errorf("got used %.3f, refused %.4f, most/least %.2f; want at least %v, at most %v and %v",
						got.used, got.refused, got.uneven, mode.want.used, mode.want.refused, mode.want.uneven)
				}
			})
		}
	}
}
