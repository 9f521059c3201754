package redisstore_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// A loss of the state while 60 callers are in the queue costs some calls, not a second
// queue: those who sleep have no slots any more, and each who has been served asks again.
func TestQueueSurvivesLostState(t *testing.T) {
	const (
		callers = 60
		stores  = 6 // as many processes, for Redis
		turn    = 50 * time.Millisecond
		extra   = 2 // B + grace/T
	)
	for _, tt := range []struct {
		name string
		open func(*testing.T) (newClient func() *redis.Client, lose func())
	}{
		{"FLUSHALL", func(t *testing.T) (func() *redis.Client, func()) {
			server := redistest.Start(t)
			return func() *redis.Client { return newClient(t, server.Options()) }, func() { do(t, server, "FLUSHALL") }
		}},
		{"FLUSHALL five times", func(t *testing.T) (func() *redis.Client, func()) {
			server := redistest.Start(t)
			return func() *redis.Client { return newClient(t, server.Options()) }, func() {
				do(t, server, "FLUSHALL")
			}
		}},
		{"restart without data", func(t *testing.T) (func() *redis.Client, func()) {
			server := redistest.Start(t)
			return func() *redis.Client { return newClient(t, server.Options()) }, server.Restart
		}},
		{"failover", func(t *testing.T) (func() *redis.Client, func()) {
			group := redistest.StartSentinel(t)
			return func() *redis.Client {
					c := redis.NewFailoverClient(group.Options())
					t.Cleanup(func() { c.Close() })
					return c
				}, func() {
					old := group.Master()
					old.Kill()
					redistest.Eventually(t, patience, "another master", func() bool { return group.Master() != old })
				}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			newClient, lose := tt.open(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()
			var mu sync.Mutex
			var calls []time.Time
			begin := time.Now()
			var running sync.WaitGroup
			for range stores {
				store := redisstore.New(newClient())
				logged(store)
				turns := gcra.Turns{Store: store, Charges: []gcra.Charge{inTurns(turn)}}
				for range callers / stores {
					running.Go(func() {
						for ctx.Err() == nil {
							err := turns.Do(ctx, func(context.Context) error {
								at := time.Now()
								mu.Lock()
								defer mu.Unlock()
								calls = append(calls, at)
								return nil
							})
							if err != nil {
								select {
								case <-time.After(turn):
								case <-ctx.Done():
								}
							}
						}
					})
				}
			}
			reached := func(n int) func() bool {
				return func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(calls) >= n
				}
			}
			redistest.Eventually(t, patience, "the queue to move", reached(callers/2))
			losses := 1
			lose()
			if tt.name == "FLUSHALL five times" {
				for ; losses < 5; losses++ {
					mu.Lock()
					n := len(calls)
					mu.Unlock()
					redistest.Eventually(t, patience, "calls", reached(n+callers/4))
					lose()
				}
			}
			mu.Lock()
			n := len(calls)
			mu.Unlock()
			redistest.Eventually(t, patience, "the queue to pass", reached(n+2*callers))
			cancel()
			running.Wait()
			slices.SortFunc(calls, time.Time.Compare)
			worst := 0
			for k, at := range calls {
				worst = max(worst, k-int(at.Sub(begin)/turn))
			}
			t.Logf("%d calls in %v: at most %d before their turns", len(calls), calls[len(calls)-1].Sub(begin), worst)
			if worst > losses*extra {
				t.Errorf("%d calls came before their turns; want at most %d", worst, losses*extra)
			}
		})
	}
}
