package test

import (
	"maps"
	"net/http"
	"net/http/httptest"
	"slices"
	"sync"
	"testing"
	"time"
)

// partner is a server that records who calls and when.
type partner struct {
	*httptest.Server

	mu     sync.Mutex
	at     []time.Time
	byPath map[string]int // calls of each caller
}

func startPartner(t *testing.T) *partner {
	p := &partner{byPath: map[string]int{}}
	p.Server = httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		p.mu.Lock()
		defer p.mu.Unlock()
		p.at = append(p.at, time.Now())
		p.byPath[r.URL.Path]++
	}))
	t.Cleanup(p.Close)
	return p
}

// calls returns the number of calls so far.
func (p *partner) calls() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.at)
}

// gaps returns the shortest and the longest time between two calls.
func (p *partner) gaps() (least, longest time.Duration) {
	least = time.Hour
	for i := range p.at[1:] {
		gap := p.at[i+1].Sub(p.at[i])
		least, longest = min(least, gap), max(longest, gap)
	}
	return least, longest
}

// excess returns how many calls more than one each turn there were at some time after begin.
func (p *partner) excess(begin time.Time, turn time.Duration) (n int) {
	for i, at := range p.at {
		n = max(n, i-int(at.Sub(begin)/turn))
	}
	return n
}

// most returns the largest number of calls in a window of this length.
func (p *partner) most(per time.Duration) (n int) {
	first := 0
	for i, at := range p.at {
		for at.Sub(p.at[first]) >= per {
			first++
		}
		n = max(n, i-first+1)
	}
	return n
}

// perCaller returns how many callers were served, and the fewest and the most calls of one of them.
func (p *partner) perCaller() (served, fewest, most int) {
	p.mu.Lock()
	defer p.mu.Unlock()
	calls := slices.Collect(maps.Values(p.byPath))
	return len(calls), slices.Min(calls), slices.Max(calls)
}
