package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestFault93OldKeysAreIgnoredAndExpire(t *testing.T) {
	o := apart(t, "a new prefix, rolled out while the old one runs")
	const burst = 5
	server := redistest.Start(t)
	limit := gcra.Limit{Count: burst, Per: phase(1500*time.Millisecond, 10*time.Second)}
	version := func(n int) *site {
		store := patientStore(t, server, config{Prefix: fmt.Sprintf("v%d:", n)})
		return openSite(t, o, sitetest.Config{Config: middleware.Config{Store: store}, Policies: []middleware.Policy{{Name: "api", Key: sitetest.Everybody, Limit: limit}}})
	}

	v1, v2 := version(1), version(2)
	begin, passed := redisTime(t, server), int64(0)
	for range 4 * burst {
		for _, v := range []*site{v1, v2} {
			if v.Do(t, "GET /ok").StatusCode == 200 {
				passed++
			}
		}
	}

	due := int64(redisTime(t, server).Sub(begin) / (limit.Per / burst))
	o.atMost(t, passed, 2*(burst+due), "while both versions run")
	if passed < 2*burst {
		t.Errorf("%d passed in two versions; want the burst of %d in each", passed, burst)
	}

	for _, key := range server.Client().Keys(t.Context(), "v*:api").Val() {
		// Redis lets it live for at most 10 s more than its bucket takes to fill.
		if ttl := server.Client().PTTL(t.Context(), key).Val(); ttl < 0 || ttl > limit.Per+10*time.Second {
			t.Errorf("%s expires in %v; want at most %v", key, ttl, limit.Per+10*time.Second)
		}
	}

	// A value of another version under the same key is like any damaged value: see
	// TestFault48DamagedValueHealsAndHarmsNoOther.
	v3 := version(3)
	if err := server.Client().HSet(t.Context(), "v3:{everybody}:api", "tokens", "3", "ts", "1700000000").Err(); err != nil {
		t.Fatal(err)
	}
	expect(t, "on a key of another format", v3.Do(t, "GET /ok").StatusCode, 200)
	if ttl := server.Client().PTTL(t.Context(), "v3:{everybody}:api").Val(); ttl == -1 {
		t.Error("a key of another format stays without a TTL")
	}
	expect(t, "decisions with an error", v1.failed.Load()+v2.failed.Load()+v3.failed.Load(), 0)
}
