package storetest

import (
	"fmt"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// concurrently calls f in n goroutines that start together.
func concurrently(n int, f func(i int)) {
	var wg sync.WaitGroup
	barrier := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-barrier
			f(i)
		})
	}
	close(barrier)
	wg.Wait()
}

// Of one hundred concurrent callers on a full bucket of 20, exactly 20 pass.
func burstPasses(t *testing.T, b Backend) {
	for round := range 5 {
		var passed atomic.Int64
		subject := fmt.Sprint("round ", round)
		concurrently(100, func(int) {
			r, err := gcra.Take(t.Context(), b.Store, gcra.Charge{Subject: subject, Policy: "p", Limit: noRefill(20), Cost: 1})
			if err != nil {
				t.Error(err)
			}
			if r.Allowed {
				passed.Add(1)
			}
		})

		if n := passed.Load(); n != 20 {
			t.Errorf("%d of 100 passed; want 20", n)
		}
	}
}

// Concurrent admissions charge a shared bucket and one of their own. Afterwards all
// buckets hold exactly the charges of the admissions that passed.
func contendedGroups(t *testing.T, b Backend) {
	const owners, each, own, shared = 10, 10, 4, 25
	var passed [owners]atomic.Int64
	concurrently(owners*each, func(i int) {
		owner := i % owners
		charges := []gcra.Charge{
			{Subject: "shared", Policy: "p", Limit: noRefill(shared), Cost: 1},
			{Subject: fmt.Sprint("owner ", owner), Policy: "p", Limit: noRefill(own), Cost: 1},
		}
		if i%2 == 0 {
			slices.Reverse(charges)
		}

		if allowed, err := b.Store.Take(t.Context(), charges); err != nil {
			t.Error(err)
		} else if allowed {
			passed[owner].Add(1)
		}
	})

	total := int64(0)
	for owner := range owners {
		n := passed[owner].Load()
		total += n
		if got := spent(t, b, fmt.Sprint("owner ", owner), "p", own); got != n {
			t.Errorf("owner %d: got %d spent; want %d, as many as passed", owner, got, n)
		}
	}

	if total < 1 || total > shared {
		t.Errorf("%d passed; want at least 1 and at most %d", total, shared)
	}
	if got := spent(t, b, "shared", "p", shared); got != total {
		t.Errorf("the shared bucket: got %d spent; want %d, as many as passed", got, total)
	}
}

// From any admission to any later one, both included, at most B + D/T units pass,
// where D is the time between them.
func boundOfInterval(t *testing.T, b Backend) {
	const (
		callers, burst = 8, 20
		interval       = time.Millisecond
		lasting        = 150 * time.Millisecond // of the store's time
	)
	limit := gcra.PerSecond(int64(time.Second / interval)).WithBurst(burst)
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1}

	list := admissions(t, b, callers, burst, lasting, interval/4, charge)
	if len(list) < burst {
		t.Errorf("%d passed in %v; want at least the burst of %d", len(list), slowest, burst)
	}

	// Admissions i to j are in the window from list[i].from to the latest end so
	// far. Their number minus the window's length in units is largest for the i with
	// the smallest i - list[i].from/interval.
	head, end := math.Inf(1), time.Duration(0)
	most := float64(burst) + 1e-6
	if !b.Exact {
		most += 0.5 // the store's clock may drift from ours
	}

	for j, a := range list {
		end = max(end, a.to)
		head = min(head, float64(j)-float64(a.from)/float64(interval))
		if got := float64(j+1) - float64(end)/float64(interval) - head; got > most {
			t.Fatalf("of %d admissions, those up to %v exceed the time they had by %.2f units; want at most %d", len(list), end, got, burst)
		}
	}

	t.Logf("%d admissions", len(list))
}

// admission is one that passed between two moments of the store's time.
type admission struct{ from, to time.Duration }

// slowest is how long a busy machine may take for a few admissions.
const slowest = 20 * time.Second

// admissions returns the admissions of callers that call Take without pause while the store's
// time passes by lasting, and until some have passed, sorted by from. If Advance alone
// moves the time, it moves in steps.
func admissions(t *testing.T, b Backend, callers, some int, lasting, step time.Duration, charge gcra.Charge) []admission {
	t.Helper()
	// The store's time is between earliest and latest.
	start := time.Now()
	earliest := func() time.Duration { return time.Since(start) }
	latest := earliest

	if b.Exact {
		var begun, done atomic.Int64
		earliest = func() time.Duration { return time.Duration(done.Load()) }
		latest = func() time.Duration { return time.Duration(begun.Load()) }

		moved := make(chan struct{})
		defer func() { <-moved }()
		go func() {
			defer close(moved)
			for latest() <= lasting {
				begun.Add(int64(step))
				b.Advance(step)
				done.Add(int64(step))
				time.Sleep(100 * time.Microsecond) // so that some calls see this time
			}
		}()
	}

	var passed atomic.Int64
	admitted := make([][]admission, callers)
	concurrently(callers, func(i int) {
		for earliest() < lasting || passed.Load() < int64(some) && time.Since(start) < slowest {
			from := earliest()
			r, err := gcra.Take(t.Context(), b.Store, charge)
			if err != nil {
				t.Error(err)
				return
			}
			if r.Allowed {
				admitted[i] = append(admitted[i], admission{from, latest()})
				passed.Add(1)
			}
			if b.Exact {
				runtime.Gosched() // or Advance would wait for a processor at each step
			}
		}
	})

	list := slices.Concat(admitted...)
	slices.SortFunc(list, func(a, b admission) int { return int(a.from - b.from) })
	return list
}
