package inspect_test

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
)

// patience is for busy machines.
const patience = time.Minute

// hostile is a subject that would run, were it not shown as text.
const hostile = `<script>alert("x")</script>`

// busyStore has the statistics of a Redis that has seen much.
type busyStore struct {
	*gcra.Memory
	batches atomic.Int64
	err     error
}

func (s *busyStore) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	s.batches.Add(1)
	if s.err != nil {
		return false, s.err
	}
	return s.Memory.Take(ctx, charges)
}

func (s *busyStore) Stats() redisstats.Stats {
	n := s.batches.Load()
	return redisstats.Stats{
		Batches: n, Operations: n * 23 / 10, BatchTime: time.Duration(n) * 640 * time.Microsecond, CachedDenials: n / 5, FailedBatches: 3,
		LocalUnits: 6 * n, ReportedUnits: 3 * n, LostUnits: 2 * n,
		Instances: 3,
		Servers: []redisstats.ServerState{
			{Server: "10.0.0.5:6379", Kind: redisstats.OneKeyspace},
			{Server: "10.0.0.6:6379", Breaker: redisstats.BreakerOpen, Reason: "does not answer: connection refused; check that Redis runs there, and host and port"},
		},
	}
}
