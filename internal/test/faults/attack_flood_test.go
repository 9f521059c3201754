package faults

import (
	"context"
	"fmt"
	"net/http"
	"net/http/httptest"
	"runtime"
	"strconv"
	"sync/atomic"
	"testing"
	"time"

	"github.com/golang-jwt/jwt/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/race"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

const (
	bytesInRedis  = 200 // a key, its value, its TTL and its share of Redis's tables
	bytesInMemory = 64  // a slot of 24 bytes in a table that is at least three eighths full
	bytesOfDebt   = 400 // a debt with its key, see SECURITY.md
	bytesOfToken  = 600 // a verified token: hash, key, three times, and the spare room of the map
)

// flood calls f for every number below n, from many goroutines.
func flood(n, workers int, f func(i int)) {
	var next atomic.Int64
	redistest.Together(workers, func(int) {
		for {
			i := int(next.Add(1)) - 1
			if i >= n {
				return
			}
			f(i)
		}
	})
}

func TestFault84FloodOfKeysInRedisIsBounded(t *testing.T) {
	n := amount(30_000, 1_000_000)
	o := fault(t, fmt.Sprint(n, " keys"))
	server := redistest.Start(t)
	store := patientStore(t, server, config{})
	ctx := t.Context()
	memory := func() int { return redistest.Stat(t, server.Client(), "memory", "used_memory:") }
	for i := range 5 {
		expect(t, fmt.Sprint("the attacker's request ", i), mustTake(t, store, daily("attacker", 3))[0].Result.Allowed, i < 3)
	}
	idle, processIdle := memory(), heap()

	// A key lives for T after a single request, whatever the window is.
	life := phase(4*time.Second, 60*time.Second)
	begin := time.Now()

	flood(n, 256, func(i int) {
		if _, err := o.take(store, gcra.Charge{Subject: "user:" + strconv.Itoa(i), Policy: "api", Limit: gcra.Limit{Count: 100, Per: 100 * life}, Cost: 1}); err != nil {
			t.Error(err)
		}
	})

	keys := server.Client().DBSize(ctx).Val()
	took, grown, process := time.Since(begin), memory()-idle, int64(heap())-int64(processIdle)
	t.Logf("%d requests in %v: %d keys, %d bytes in Redis (%d a key), %d in this process", n, took.Round(time.Millisecond), keys, grown, grown/int(max(keys, 1)), process)

	if keys < int64(n)/10 || grown > int(keys)*bytesInRedis+1<<20 {
		t.Errorf("%d requests took %d bytes in %d keys; want at most %d a key", n, grown, keys, bytesInRedis)
	}
	if process > int64(n)*bytesInMemory+16<<20 {
		t.Errorf("%d keys took %d bytes of this process; want at most %d each", n, process, bytesInMemory)
	}
	expect(t, "the attacker passes", mustTake(t, store, daily("attacker", 3))[0].Result.Allowed, false)
	expect(t, "a newcomer passes", mustTake(t, store, daily("newcomer", 3))[0].Result.Allowed, true)

	// Redis lets a key live for at most 10 s more than its bucket takes to fill.
	for i := range 100 {
		if ttl := server.Client().PTTL(ctx, fmt.Sprintf("rl:{user:%d}:api", n-1-i)).Val(); ttl == -1 || ttl > life+10*time.Second {
			t.Errorf("a key of the flood expires in %v; want at most %v", ttl, life+10*time.Second)
		}
	}

	if long {
		ended := time.Now()
		redistest.Eventually(t, life+ample, "the flood to have expired", func() bool { return server.Client().DBSize(ctx).Val() <= 2 })
		o.recovery = time.Since(ended)
		if left := memory() - idle; left > grown/3+1<<20 {
			t.Errorf("%d bytes are left of %d; want nearly none", left, grown)
		}
	}

	// With a limit by address on the same request, the flood writes nothing more.
	s := openSite(t, o, sitetest.Config{Config: middleware.Config{Store: store}, Policies: []middleware.Policy{
		{Name: "address", Key: keyfunc.RemoteAddr, Limit: gcra.PerDay(50)},
		{Name: "identity", Key: byClient, Limit: gcra.PerDay(10)}}})
	before := len(bucketKeys(t, server))
	for i := range amount(500, 10_000) {
		s.Do(t, "GET /ok", fmt.Sprint("X-Client: ", i))
	}
	expect(t, "keys of a flood behind a limit of 50 by address", len(bucketKeys(t, server))-before, 51)
}

func TestFault85FloodOfKeysInMemoryIsBounded(t *testing.T) {
	race.Skip(t)

	n := amount(100_000, 1_200_000)
	o := fault(t, fmt.Sprint(n, " keys in Memory, the store's local Memory and the token cache"))

	// Each key has most of its burst spent, so that no slot becomes free by itself. A
	// unit comes back in a second.
	limit := gcra.Limit{Count: 1, Per: time.Second, Burst: 3600}
	charge := func(subject string, cost int64) gcra.Charge {
		return gcra.Charge{Subject: subject, Policy: "p", Limit: limit, Cost: cost, Peek: cost == 0}
	}

	away := rigAt(t, "redis://127.0.0.1:1", config{}) // no Redis is there
	for _, tt := range []struct {
		name     string
		store    gcra.Store
		capacity int
		debts    int64 // keys that are to be charged in Redis later
	}{
		{"a small Memory", gcra.NewMemory(gcra.MemoryConfig{Capacity: 1 << 14}), 1 << 14, 0},
		{"Memory", gcra.NewMemory(), 1 << 20, 0},
		{"the local Memory of a store", away.Local(1), 1 << 20, 1 << 16},
	} {
		before := heap()
		mustTake(t, tt.store, charge("attacker", 3600))

		var denied atomic.Int64
		flood(n, 4, func(i int) {
			charges := []gcra.Charge{charge("user:"+strconv.Itoa(i), 600)}
			begin := time.Now()
			if _, err := tt.store.Take(context.Background(), charges); err != nil {
				t.Error(err)
			}
			o.decided(time.Since(begin))
			if !charges[0].Result.Allowed {
				denied.Add(1)
			}
		})

		// The table may be full now, and the shared bucket empty.
		grown := int64(heap()) - int64(before)
		t.Logf("%s: %d bytes for %d keys of at most %d, %d denied", tt.name, grown, n, tt.capacity, denied.Load())
		if bound := int64(min(2*n, tt.capacity))*bytesInMemory + tt.debts*bytesOfDebt + 4<<20; grown > bound {
			t.Errorf("%s: %d bytes for %d keys; want at most %d", tt.name, grown, n, bound)
		}
		if full := n > tt.capacity; full != (denied.Load() > 0) {
			t.Errorf("%s: %d of %d keys denied with room for %d", tt.name, denied.Load(), n, tt.capacity)
		}
		expect(t, tt.name+": the attacker passes with its whole burst", mustTake(t, tt.store, charge("attacker", 3600))[0].Result.Allowed, false)
		redistest.Eventually(t, ample, tt.name+": a newcomer to pass", func() bool { return mustTake(t, tt.store, charge("newcomer", 1))[0].Result.Allowed })
		other := charge("newcomer", 1)
		other.Policy = "another"
		expect(t, tt.name+": a newcomer passes another policy", mustTake(t, tt.store, other)[0].Result.Allowed, true)
		runtime.KeepAlive(tt.store)
	}

	if err := away.Close(); err != nil { // its payments take memory, too
		t.Error(err)
	}

	// Verified tokens: 16,384 are remembered.
	tokens := amount(25_000, 1_000_000)

	secret := []byte("a secret that is long enough for HS256")
	key := keyfunc.JWTSubject(func(*jwt.Token) (any, error) { return secret, nil }, []string{"HS256"})
	ask := func(subject string) string {
		token, err := jwt.NewWithClaims(jwt.SigningMethodHS256, jwt.RegisteredClaims{
			Subject: subject, Issuer: "us", ExpiresAt: jwt.NewNumericDate(time.Now().Add(time.Hour))}).SignedString(secret)
		if err != nil {
			t.Error(err)
		}

		r := httptest.NewRequest(http.MethodGet, "/", nil)
		r.Header.Set("Authorization", "Bearer "+token)
		k, err := key(r)
		if err != nil {
			t.Error(err)
		}
		return k
	}

	before := heap()
	flood(tokens, 2, func(i int) { ask("user:" + strconv.Itoa(i)) })
	grown := int64(heap()) - int64(before)
	t.Logf("token cache: %d bytes after %d tokens", grown, tokens)
	if bound := int64(16_384*bytesOfToken + 1<<20); grown > bound {
		t.Errorf("%d tokens took %d bytes; want at most %d", tokens, grown, bound)
	}
	expect(t, "subject of a token seen first", ask("user:0"), "sub:us|user:0")
	expect(t, "subject of a new token", ask("newcomer"), "sub:us|newcomer")
	runtime.KeepAlive(key)
}
