package readme

import (
	"context"
	"sync/atomic"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/storetest"
)

// ownStore stands for a store of one's own: it counts the calls of another.
type ownStore struct {
	gcra.Store
	calls atomic.Int64
}

func (s *ownStore) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	s.calls.Add(1)
	return s.Store.Take(ctx, charges)
}

func newOwnStore(now func() time.Time) *ownStore {
	return &ownStore{Store: &gcra.Memory{Now: now}}
}

func TestStoreContract(t *testing.T) {
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		var passed atomic.Int64
		start := time.Now()
		return storetest.Backend{
			Store:   newOwnStore(func() time.Time { return start.Add(time.Duration(passed.Load())) }),
			Advance: func(d time.Duration) { passed.Add(int64(d)) },
			Exact:   true, // time stands still between the calls of Advance
		}
	})
}
