package inspect_test

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/test/doubles"
	"github.com/seed-e377111c/ratelimit/middleware"
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

// busyScene has 15 minutes of traffic behind it, with a wave and an attack.
func busyScene(t *testing.T) *scene {
	clock := new(doubles.Clock)
	store := &busyStore{Memory: gcra.NewMemory(gcra.MemoryConfig{Now: clock.Now})}
	plan := func(r *http.Request) gcra.Limit {
		if strings.HasPrefix(r.Header.Get("Who"), "sub:pro") {
			return gcra.PerMinute(600)
		}
		return gcra.PerMinute(60)
	}

	s := newSceneOn(t, clock, store,
		middleware.Policy{Name: "client", Key: who, Limit: gcra.PerMinute(100).WithBurst(20)},
		middleware.Policy{Name: "login", Key: who, Limit: gcra.PerMinute(5), Routes: []string{"POST /login", "POST /password"}, OnFailure: middleware.FailClosed},
		middleware.Policy{Name: "plan", Key: who, LimitFor: plan, Cost: func(*http.Request) int64 { return 2 }},
		middleware.Policy{Name: "strict", Key: who, Limit: gcra.PerMinute(8), Shadow: true, MaxDelay: 2 * time.Second},
	)

	for i := range 60 {
		for user := range 12 {
			s.ask(1+(i+user)%4, fmt.Sprintf("sub:pro%d", user), "/hello")
			s.ask(1, fmt.Sprintf("ip:198.51.100.%d", user), "/hello")
		}
		if i > 35 && i < 47 {
			s.ask(60+i, "ip:192.0.2.7", "/hello")
			s.ask(12, "ip:2001:db8:1:2::/64", "/hello")
		}

		if i%5 == 0 {
			r := httptest.NewRequest("POST", "/login", nil)
			r.Header.Set("Who", hostile)
			for range 9 {
				s.limiter.Decide(r)
			}
			s.ask(30, "own:"+strings.Repeat("a-very-long-tenant-name/", 8)+"42", "/hello")
		}

		if i < 59 {
			s.Add(15 * time.Second)
		}
	}

	s.ask(14, "ip:192.0.2.7", "/hello")
	store.err = fmt.Errorf("%w: dial tcp 10.0.0.6:6379: connect: connection refused", redisstore.ErrUnavailable)
	s.ask(7, "ip:198.51.100.7", "/hello")
	store.err = nil
	s.Add(3 * time.Second)
	return s
}
