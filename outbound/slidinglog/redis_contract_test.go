package slidinglog_test

import (
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/storetest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// contract runs the contract by the clock of the client's Redis.
func contract(t *testing.T, client redis.UniversalClient) {
	t.Helper()
	storetest.Run(t, func(t testing.TB) storetest.Backend {
		r := newStore(t, client, config{})
		return storetest.Backend{Store: r, Advance: func(d time.Duration) { shift(t, client, r.Prefix(), d) }, Algorithm: storetest.Sliding}
	})
}

func TestRedisContract(t *testing.T) { contract(t, patient(t, redistest.Start(t))) }

func TestRedisContractEmbedded(t *testing.T) { contract(t, redistest.StartEmbedded(t)) }

// On a stopped clock every result is exact to the microsecond.
func TestRedisContractExact(t *testing.T) {
	t.Parallel()
	for _, tt := range []struct {
		name string
		open func(testing.TB) *redis.Client
	}{{"Any", redistest.Any}, {"Embedded", redistest.StartEmbedded}} {
		t.Run(tt.name, func(t *testing.T) {
			client := tt.open(t)
			c := stopClock(t, client)
			storetest.Run(t, func(testing.TB) storetest.Backend {
				return storetest.Backend{Store: newStore(t, client, config{}), Advance: c.advance, Exact: true, Algorithm: storetest.Sliding}
			})
		})
	}
}

func TestRedisContractCluster(t *testing.T) {
	t.Parallel()
	o := redistest.StartCluster(t).Options()
	o.ReadTimeout = patience
	client := redis.NewClusterClient(o)
	t.Cleanup(func() { client.Close() })
	contract(t, client)
}

func TestRedisContractRing(t *testing.T) {
	t.Parallel()
	addrs := map[string]string{"one": redistest.Start(t).Addr, "two": redistest.Start(t).Addr}
	ring := redis.NewRing(&redis.RingOptions{Addrs: addrs, ReadTimeout: patience})
	t.Cleanup(func() { ring.Close() })
	contract(t, ring)
}
