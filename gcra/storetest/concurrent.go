package storetest

import (
	"fmt"
	"math"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// together runs f n times at once, from a common start.
func together(n int, f func(i int)) {
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

// One hundred callers at once find a fresh bucket of 20: exactly 20 pass.
func exactlyTheBurst(t *testing.T, b Backend) {
	for round := range 5 {
		var passed atomic.Int64
		subject := fmt.Sprint("round ", round)
		together(100, func(int) {
			r, err := gcra.Take(t.Context(), b.Store, gcra.Charge{Subject: subject, Policy: "p", Limit: ages(20), Cost: 1})
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

// Admissions that compete for one bucket and each need another of their own
// leave behind, in all buckets, exactly what was charged to those that passed.
func contendedGroups(t *testing.T, b Backend) {
	const owners, each, own, shared = 10, 10, 4, 25
	var passed [owners]atomic.Int64
	together(owners*each, func(i int) {
		owner := i % owners
		charges := []gcra.Charge{
			{Subject: "everybody", Policy: "p", Limit: ages(shared), Cost: 1},
			{Subject: fmt.Sprint("owner ", owner), Policy: "p", Limit: ages(own), Cost: 1},
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
	if got := spent(t, b, "everybody", "p", shared); got != total {
		t.Errorf("everybody's bucket: got %d spent; want %d, as many as passed", got, total)
	}
}

// Between any two admissions, whatever the load, at most B + D/T units pass,
// the two included, where D is the time between them.
func boundOverAnyWindow(t *testing.T, b Backend) {
	const (
		callers, burst = 8, 20
		interval       = time.Millisecond
		lasting        = 150 * time.Millisecond // of the store's time
	)
	limit := gcra.PerSecond(int64(time.Second / interval)).WithBurst(burst)
	charge := gcra.Charge{Subject: "s", Policy: "p", Limit: limit, Cost: 1}
	list := admissions(t, b, callers, lasting, interval/4, charge)
	if len(list) < burst {
		t.Errorf("%d passed in %v; want at least the burst of %d", len(list), lasting, burst)
	}
	// The i-th to the j-th fall into one window from list[i].from to the latest
	// end so far. Their number less the window's length in units is largest for
	// the i that has had the smallest head start.
	head, end := math.Inf(1), time.Duration(0)
	most := float64(burst) + 1e-6
	if !b.Exact {
		most += 0.5 // the store's clock may be slewed against ours
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

// admission was made between two moments of the store's time.
type admission struct{ from, to time.Duration }

// admissions are those of callers that ask without a pause while the store's
// time, moved by one step after another where it stands still, goes on by
// lasting; in the order of their beginnings.
func admissions(t *testing.T, b Backend, callers int, lasting, step time.Duration, charge gcra.Charge) []admission {
	t.Helper()
	// The store's time is at least earliest and at most latest.
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
				time.Sleep(100 * time.Microsecond) // let some calls see this moment
			}
		}()
	}

	admitted := make([][]admission, callers)
	together(callers, func(i int) {
		for earliest() < lasting {
			from := earliest()
			r, err := gcra.Take(t.Context(), b.Store, charge)
			if err != nil {
				t.Error(err)
				return
			}
			if r.Allowed {
				admitted[i] = append(admitted[i], admission{from, latest()})
			}
		}
	})

	list := slices.Concat(admitted...)
	slices.SortFunc(list, func(a, b admission) int { return int(a.from - b.from) })
	return list
}
