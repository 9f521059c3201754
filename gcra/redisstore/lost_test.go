package redisstore_test

import (
	"context"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// Redis loses its state while 60 callers are in the queue, and each asks again when it has
// been served. The callers with slots from before the loss and those from after it are not
// two queues: at most B + grace/T calls more are made for each loss.
func TestQueueSurvivesLostState(t *testing.T) {
	t.Parallel()
	const (
		callers = 60
		stores  = 6
		turn    = 50 * time.Millisecond
		extra   = 2 // B + grace/T
	)

	standalone := func(lose func(*redistest.Server)) func(*testing.T) (func() *redis.Client, func()) {
		return func(t *testing.T) (func() *redis.Client, func()) {
			server := redistest.Start(t)
			return func() *redis.Client { return newClient(t, server.Options()) }, func() { lose(server) }
		}
	}

	flush := func(s *redistest.Server) { s.Client().FlushAll(context.Background()) }
	for _, tt := range []struct {
		name   string
		losses int
		start  func(*testing.T) (client func() *redis.Client, lose func())
	}{
		{"FLUSHALL", 1, standalone(flush)},
		{"FLUSHALL four times", 4, standalone(flush)},
		{"restart without data", 1, standalone((*redistest.Server).Restart)},
		{"failover", 1, func(t *testing.T) (func() *redis.Client, func()) {
			group := redistest.StartSentinel(t)
			client := func() *redis.Client {
				c := redis.NewFailoverClient(group.Options())
				t.Cleanup(func() { c.Close() })
				return c
			}

			return client, func() {
				old := group.Master()
				old.Kill()
				group.Successor(old)
			}
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			client, lose := tt.start(t)
			ctx, cancel := context.WithCancel(t.Context())
			defer cancel()

			var mu sync.Mutex
			var calls []time.Time
			call := func(context.Context) error {
				mu.Lock()
				defer mu.Unlock()
				calls = append(calls, time.Now())
				return nil
			}

			begin := time.Now()
			var running sync.WaitGroup
			for range stores {
				store := storeOn(t, client(), config{Logger: quiet})
				charge := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.Limit{Count: 1, Per: turn}, Cost: 1}
				partner := turns.Turns{Store: store, Charges: []gcra.Charge{charge}}
				for range callers / stores {
					running.Go(func() {
						for ctx.Err() == nil {
							if partner.Do(ctx, call) != nil {
								time.Sleep(turn) // Redis is down
							}
						}
					})
				}
			}

			await := func(more int) {
				t.Helper()
				mu.Lock()
				want := len(calls) + more
				mu.Unlock()

				redistest.Eventually(t, patience+3*time.Duration(more)*turn, "calls", func() bool {
					mu.Lock()
					defer mu.Unlock()
					return len(calls) >= want
				})
			}

			await(callers / 2)
			for range tt.losses {
				lose()
				await(callers / 4)
			}

			await(2 * callers)
			cancel()
			running.Wait()
			slices.SortFunc(calls, time.Time.Compare)

			early, window := 0, 0
			for j := range calls {
				early = max(early, j-int(calls[j].Sub(begin)/turn))
				for i := range j {
					window = max(window, j-i-int(calls[j].Sub(calls[i])/turn))
				}
			}

			// A call that is late makes an interval that begins with it look fuller, so
			// only the intervals from the beginning are exact.
			t.Logf("%d calls in %v; at most %d more than one each %v, or %d in any interval",
				len(calls), calls[len(calls)-1].Sub(begin), early, turn, window)
			if most := tt.losses * extra; early > most {
				t.Errorf("%d calls more than one each %v; want at most %d", early, turn, most)
			}
		})
	}
}
