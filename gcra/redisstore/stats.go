package redisstore

import (
	"cmp"
	"slices"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// counters are the counts behind Stats.
type counters struct {
	batches, requests, failures atomic.Int64
	batchTime                   atomic.Int64 // ticks
}

// count counts a batch, with its error and the ticks that it took.
func (c *counters) count(err error, requests int, took int64) {
	if rediskit.Down(err) {
		c.failures.Add(1)
		return
	}
	c.batches.Add(1)
	c.requests.Add(int64(requests))
	c.batchTime.Add(took)
}

// Stats implements [gcra.StatsStore].
func (s *Store) Stats() gcra.Stats {
	units := s.reporter.grants.Units()
	stats := gcra.Stats{
		Batches:       s.batches.Load(),
		Requests:      s.requests.Load(),
		BatchTime:     tat.Duration(s.batchTime.Load()),
		FailedBatches: s.failures.Load(),
		CachedDenials: s.denials.count(),
		LocalUnits:    units.Granted,
		PaidUnits:     units.Reported,
		UnpaidUnits:   units.Lost,
		Instances:     int(s.counted.count.Load()),
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
	slices.SortFunc(stats.Servers, func(a, b gcra.ServerState) int { return cmp.Compare(a.Server, b.Server) })
	return stats
}

func (b *batcher) usedSince(t int64) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.deadline >= t
}

func (b *batcher) state() gcra.ServerState {
	s := gcra.ServerState{Server: b.server, Breaker: b.breaker.state(), Kind: b.kind()}
	if s.Breaker != gcra.BreakerClosed {
		s.Reason = b.breaker.health.lastReason()
	}
	return s
}
