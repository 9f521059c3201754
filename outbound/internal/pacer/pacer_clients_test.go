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
	"github.com/seed-e377111c/ratelimit/internal/test/race"
)

// event is the next step of a caller.
type event struct {
	at     time.Duration
	caller int
	step   int // one of the following
	slept  bool
}

// again is Pacer.Again, which is only for a request that has slept.
func (e *event) again(p *Pacer, now time.Time) time.Duration {
	if !e.slept {
		return 0
	}
	return p.Again(now)
}

const (
	slept = iota
	atServer
	answered
)

// events is a heap of events by time.
type events []event

func (e events) Len() int           { return len(e) }
func (e events) Less(i, j int) bool { return e[i].at < e[j].at }
func (e events) Swap(i, j int)      { e[i], e[j] = e[j], e[i] }
func (e *events) Push(x any)        { *e = append(*e, x.(event)) }
func (e *events) Pop() any {
	old := *e
	x := old[len(old)-1]
	*e = old[:len(old)-1]
	return x
}

// runClients simulates clients, each with several callers, that share a full bucket and call
// without pause, in virtual time. It returns the allowed and denied requests of each client after
// the warm-up.
func runClients(t *testing.T, limit gcra.Limit, header func(gcra.Result) http.Header, clients, callers int, warm, run time.Duration) (allowed, denied []int) {
	t.Helper()
	const roundTrip = 50 * time.Millisecond

	start := time.Unix(1_800_000_000, 0)
	now := start
	store := gcra.NewMemory(gcra.MemoryConfig{Now: func() time.Time { return now }})
	random := rand.New(rand.NewPCG(1, 2))

	pacers := make([]Pacer, clients)
	for i := range pacers {
		pacers[i].Rand = random.Float64
	}

	allowed, denied = make([]int, clients), make([]int, clients)
	results := make([]gcra.Result, clients*callers)
	var todo events

	next := func(caller int) {
		d := pacers[caller/callers].next(now)
		heap.Push(&todo, event{now.Sub(start) + d, caller, slept, d > 0})
	}
	for c := range results {
		next(c)
	}

	for {
		e := heap.Pop(&todo).(event)
		if e.at > warm+run {
			return allowed, denied
		}

		now = start.Add(e.at)
		client := e.caller / callers
		switch e.step {
		case slept:
			if d := e.again(&pacers[client], now); d > 0 {
				heap.Push(&todo, event{e.at + d, e.caller, slept, true})
			} else {
				heap.Push(&todo, event{at: e.at + roundTrip/2, caller: e.caller, step: atServer})
			}

		case atServer:
			r, err := gcra.Take(t.Context(), store, gcra.Charge{Subject: "all", Policy: "p", Limit: limit, Cost: 1})
			if err != nil {
				t.Fatal(err)
			}

			results[e.caller] = r
			heap.Push(&todo, event{at: e.at + roundTrip/2, caller: e.caller, step: answered})

		case answered:
			r, status := results[e.caller], http.StatusOK
			count := allowed
			if !r.Allowed {
				status, count = http.StatusTooManyRequests, denied
			}

			if e.at > warm {
				count[client]++
			}
			pacers[client].Done(now, status, header(r))
			next(e.caller)
		}
	}
}

func remainingOnly(r gcra.Result) http.Header {
	return http.Header{"Ratelimit-Remaining": {strconv.FormatInt(r.Remaining, 10)}}
}

func allFields(limit gcra.Limit) func(gcra.Result) http.Header {
	return func(r gcra.Result) http.Header {
		h := remainingOnly(r)
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

// After a warm-up, clients that share a limit use it up, are hardly denied, and get equal parts.
// With RateLimit-Remaining alone that holds for buckets much larger than the reserve; in smaller
// ones every client gets a part. The bounds are measured values with a margin: the least use, the
// most denials, and the ratio of the client with the most to the client with the least.
func TestClientsShareLimit(t *testing.T) {
	race.Skip(t)

	type bounds struct{ used, denied, uneven float64 }
	for _, c := range []struct {
		limit              gcra.Limit
		clients, callers   int
		all, remainingOnly bounds
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
			name   string
			header func(gcra.Result) http.Header
			want   bounds
		}{{"all fields", allFields(c.limit), c.all}, {"remaining alone", remainingOnly, c.remainingOnly}} {
			t.Run(fmt.Sprintf("%v/%dx%d/%s", c.limit, c.clients, c.callers, mode.name), func(t *testing.T) {
				perSecond := float64(c.limit.Count) / c.limit.Per.Seconds()
				run := min(20*time.Minute, time.Duration(10_000/perSecond)*time.Second)
				warm := 10 * time.Minute
				if perSecond > 20 {
					warm /= 2
				}

				allowed, denied := runClients(t, c.limit, mode.header, c.clients, c.callers, warm, run)
				allAllowed, allDenied := 0, 0
				for i := range allowed {
					allAllowed += allowed[i]
					allDenied += denied[i]
				}

				got := bounds{
					used:   float64(allAllowed) / (perSecond * run.Seconds()),
					denied: float64(allDenied) / float64(allAllowed+allDenied),
					uneven: float64(slices.Max(allowed)) / float64(slices.Min(allowed)),
				}

				if got.used < mode.want.used || got.denied > mode.want.denied || got.uneven > mode.want.uneven {
					t.Errorf("got used %.3f, denied %.4f, most/least %.2f; want at least %v, at most %v and %v",
						got.used, got.denied, got.uneven, mode.want.used, mode.want.denied, mode.want.uneven)
				}
			})
		}
	}
}
