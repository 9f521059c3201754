package inflight

import (
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Leases that are renewed together are written once each: a second write of the same number is refused. The servers are
// counted meanwhile, and a reply that is lost is an error of the network.
func TestRenewTogether(t *testing.T) {
	t.Parallel()
	p := redistest.NewProxy(t, redistest.Start(t).Addr)
	client := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, ReadTimeout: time.Second})
	defer client.Close()
	s := &redisStore{client, "test:"}
	number := int64(0)
	write := func(names ...string) (granted string, err error) {
		var calls []*call
		for _, name := range names {
			number++
			calls = append(calls, &call{name: name, number: number, held: 1, lease: shortLease, answer: func(g string, e error) {
				if granted == "" && err == nil {
					granted, err = g, e
				}
			}})
		}
		s.write(t.Context(), "0123456789abcdef", calls)
		return granted, err
	}

	for _, name := range []string{key1, "user:2", serversKey} {
		if granted, err := write(name); granted != "1" || err != nil {
			t.Errorf("%s: got %q, %v; want 1", name, granted, err)
		}
	}
	if servers, err := write(serversKey, key1, "user:2"); servers != "1" || err != nil {
		t.Errorf("renewals: %q servers, %v; want 1", servers, err)
	}

	p.DropReply(1)
	if _, err := write(key1, "user:2"); err == nil || strings.Contains(err.Error(), "OLD") {
		t.Errorf("a reply is lost: got error %v; want one of the network", err)
	}
}
