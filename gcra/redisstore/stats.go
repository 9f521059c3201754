package redisstore

import (
	"cmp"
	"fmt"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Stats counts what a [Store] has done since its first use. Counts only grow.
type Stats struct {
	Batches       int64         // batches that Redis answered, also with an error of the script
	Operations    int64         // admissions and refunds in them: Operations/Batches is the mean batch size
	BatchTime     time.Duration // total time of these batches
	FailedBatches int64         // batches without an answer, or with an error that concerns the whole server, such as LOADING
	CachedDenials int64         // admissions that were denied without asking Redis
	LocalUnits    int64         // units that Local has granted, as Redis did not answer or a policy failed
	PaidUnits     int64         // of these, units that were charged in Redis later
	UnpaidUnits   int64         // of these, units that will not be: more than 65,536 keys were owed, or the store was closed before they were charged
	Instances     int           // stores that share the limits, this one included, as counted last: see Store.Local; 0 before the first count
	Servers       []ServerState // the single server, or each of several that was used within the last minute, by address
}

// ServerState is the state of one server.
type ServerState struct {
	Server  string // its address as the client has it ("FailoverClient" behind Sentinel); "" before the topology of a cluster is known
	Breaker BreakerState
	Kind    ServerKind `json:",omitempty"` // of the keys that one script may have
	Reason  string     `json:",omitempty"` // why the last batch failed, and what to look at; "" while the breaker is closed
}

// BreakerState is the state of a circuit breaker. The zero value is
// BreakerClosed.
type BreakerState uint8

// The states of a breaker.
const (
	BreakerClosed   BreakerState = iota // the server is in use
	BreakerOpen                         // it has failed and is not called; Take fails at once with [ErrUnavailable]
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
	batches, operations, failures atomic.Int64
	batchTime                     atomic.Int64 // ticks
}

// count counts a batch, with its error and the ticks that it took.
func (c *counters) count(err error, operations int, took int64) {
	if rediskit.Down(err) {
		c.failures.Add(1)
		return
	}
	c.batches.Add(1)
	c.operations.Add(int64(operations))
	c.batchTime.Add(took)
}

// Stats returns what the store has done so far.
func (s *Store) Stats() Stats {
	s.once.Do(s.init)
	local, paid, unpaid := s.debts.counts()
	stats := Stats{
		Batches:       s.batches.Load(),
		Operations:    s.operations.Load(),
		BatchTime:     tat.Duration(s.batchTime.Load()),
		FailedBatches: s.failures.Load(),
		CachedDenials: s.denials.count(),
		LocalUnits:    local,
		PaidUnits:     paid,
		UnpaidUnits:   unpaid,
		Instances:     int(s.counted.count.Load()),
	}
	if s.invalid != nil {
		return stats
	}
	if s.only != nil {
		stats.Servers = append(stats.Servers, s.only.state())
	}
	since := s.clock.Now() - tat.Ticks(time.Minute) // unused servers may have left the cluster
	s.batchers.Range(func(_, v any) bool {
		if b := v.(*batcher); b.usedSince(since) {
			stats.Servers = append(stats.Servers, b.state())
		}
		return true
	})
	slices.SortFunc(stats.Servers, func(a, b ServerState) int { return cmp.Compare(a.Server, b.Server) })
	return stats
}

func (b *batcher) usedSince(t int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadline >= t
}

func (b *batcher) state() ServerState {
	s := ServerState{Server: b.server, Breaker: b.breaker.state(), Kind: b.kind()}
	if s.Breaker != BreakerClosed {
		s.Reason = b.breaker.health.lastReason()
	}
	return s
}
