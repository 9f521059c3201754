package gcra

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Stats are what a [Redis] has done since its first use, for metrics and for
// people who look into it. Counts only grow.
type Stats struct {
	Batches       int64         // batches that Redis answered, if only with an error of its own
	Operations    int64         // admissions and refunds in them: Operations/Batches is the mean batch size
	BatchTime     time.Duration // what these batches took together
	FailedBatches int64         // batches that were not answered, or with what says that Redis is of no use now, such as LOADING
	CachedDenials int64         // admissions that were denied without asking Redis
	Servers       []ServerState // a single server, or each of several that was wanted within the last minute, by address
}

// ServerState is the state of the circuit breaker of one server.
type ServerState struct {
	Server  string // its address as the client has it ("FailoverClient" behind Sentinel), or "" where it was not known which to ask
	Breaker BreakerState
}

// BreakerState is the state of a circuit breaker. The zero value is
// BreakerClosed.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerClosed   BreakerState = iota // the server is in use
	BreakerOpen                         // it has failed and is not asked; calls fail at once with [ErrUnavailable]
	BreakerHalfOpen                     // one batch is sent to see whether it answers again
)

// String returns "closed", "open" or "half-open".
func (s BreakerState) String() string {
	switch s {
	case BreakerClosed:
		return "closed"
	case BreakerOpen:
		return "open"
	case BreakerHalfOpen:
		return "half-open"
	}
	return fmt.Sprintf("BreakerState(%d)", uint8(s))
}

// MarshalText returns the text of String, so that [Stats] in JSON (in expvar,
// for example) names the state.
func (s BreakerState) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// counters are the counts behind Stats.
type counters struct {
	trips, carried, failures atomic.Int64
	tripTime                 atomic.Int64 // ticks
}

// count takes note of a batch that is back, or was given up.
func (c *counters) count(err error, rides int, took int64) {
	if rediskit.Down(err) {
		c.failures.Add(1)
		return
	}
	c.trips.Add(1)
	c.carried.Add(int64(rides))
	c.tripTime.Add(took)
}

// Stats returns what the store has done so far.
func (r *Redis) Stats() Stats {
	r.once.Do(r.init)
	s := Stats{
		Batches:       r.trips.Load(),
		Operations:    r.carried.Load(),
		BatchTime:     time.Duration(r.tripTime.Load()) * tick,
		FailedBatches: r.failures.Load(),
		CachedDenials: r.mirror.refusals(),
	}
	if r.invalid != nil {
		return s
	}
	if r.only != nil {
		s.Servers = append(s.Servers, r.only.state())
	}
	since := r.mirror.now() - ticksIn(time.Minute) // others may have left the cluster
	r.lanes.Range(func(_, v any) bool {
		if l := v.(*lane); l.wantedSince(since) {
			s.Servers = append(s.Servers, l.state())
		}
		return true
	})
	slices.SortFunc(s.Servers, func(a, b ServerState) int { return cmp.Compare(a.Server, b.Server) })
	return s
}

func (l *lane) wantedSince(t int64) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.wanted >= t
}

func (l *lane) state() ServerState {
	return ServerState{Server: l.server, Breaker: l.breaker.state()}
}

// refusals is how often the mirror has refused.
func (m *mirror) refusals() (n int64) {
	for i := range m.shards {
		n += m.shards[i].refused.Load()
	}
	return n
}
