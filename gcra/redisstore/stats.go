package redisstore

import (
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// counters are the counts behind Stats.
type counters struct {
	batches, requests, failures atomic.Int64
	batchTime                   atomic.Int64 // ticks
	denied                      atomic.Int64 // requests, without a call
}

// count counts a batch.
func (c *counters) count(r send.Result) {
	if rediskit.Down(r.Err) {
		c.failures.Add(1)
		return
	}
	c.batches.Add(1)
	c.requests.Add(int64(r.Requests))
	c.batchTime.Add(r.Took)
}

// Stats implements [redisstats.Store].
func (s *Store) Stats() redisstats.Stats {
	units := s.reporter.grants.Units()
	stats := redisstats.Stats{
		Batches:       s.batches.Load(),
		Operations:    s.requests.Load(),
		BatchTime:     tat.Duration(s.batchTime.Load()),
		FailedBatches: s.failures.Load(),
		CachedDenials: s.denied.Load(),
		LocalUnits:    units.Granted,
		ReportedUnits: units.Reported,
		LostUnits:     units.Lost,
		Instances:     int(s.counted.count.Load()),
		Servers:       s.sender.Servers(s.clock.Now() - tat.Ticks(time.Minute)), // unused ones may have left the cluster
	}

	for i := range stats.Servers {
		if server := &stats.Servers[i]; server.Breaker != redisstats.BreakerClosed {
			server.Reason = s.health(server.Server).lastReason()
		}
	}
	return stats
}
