package slidinglog_test

import (
	"context"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// openedClient is a client with the settings of redisstore.Open.
func openedClient(t testing.TB, url string) *redis.Client {
	t.Helper()
	o, err := redisstore.ClientOptions(url)
	if err != nil {
		t.Fatal(err)
	}
	client := redis.NewClient(o.Simple())
	t.Cleanup(func() { client.Close() })
	return client
}

// A call in the goroutine of its caller ends after Timeout, with the same error as any: while Redis
// hangs, and while no connection can be made.
func TestTimeoutOfTheCaller(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r := storeOn(t, openedClient(t, "redis://"+proxy.Addr), config{})
	ctx := context.Background()
	redistest.Eventually(t, patience, "a first answer", func() bool { _, err := gcra.Take(ctx, r, hourly("p", 5, 1)); return err == nil })
	proxy.Blackhole()
	for i := range 4 { // the first have connections, later ones dial
		start := time.Now()
		_, err := gcra.Take(ctx, r, hourly("p", 5, 1))
		if d := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || d > time.Second {
			t.Errorf("call %d: got %v after %v; want context.DeadlineExceeded after 50ms", i, err, d)
		}
		if err != nil && !strings.Contains(err.Error(), "slidinglog: redis: no answer within 50ms") {
			t.Errorf("call %d: got %v; want it to say how long it has waited", i, err)
		}
	}
}
