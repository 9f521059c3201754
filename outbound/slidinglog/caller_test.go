package slidinglog_test

import (
	"context"
	"errors"
	"runtime/debug"
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

// stacks is a hook that keeps the stacks of the goroutines that send scripts.
type stacks struct{ seen *[]string }

func (s stacks) DialHook(next redis.DialHook) redis.DialHook { return next }

func (s stacks) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (s stacks) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		*s.seen = append(*s.seen, string(debug.Stack()))
		return next(ctx, cmd)
	}
}

// A call is sent in the goroutine of its caller if the client's deadlines bound it, and the caller's
// context has no end. Otherwise another goroutine waits for the client.
func TestSentByTheCaller(t *testing.T) {
	server := redistest.Start(t)
	canceled, cancel := context.WithCancel(t.Context())
	defer cancel()

	for _, tt := range []struct {
		name     string
		client   *redis.Client
		ctx      context.Context
		byCaller bool
	}{
		{"the settings of Open", openedClient(t, server.URL()), context.WithoutCancel(t.Context()), true},
		{"a context that may end", openedClient(t, server.URL()), canceled, false},
		{"a plain client", patient(t, server), context.WithoutCancel(t.Context()), false},
	} {
		r := newStore(t, tt.client, config{})
		var seen []string
		tt.client.AddHook(stacks{&seen})
		for _, refund := range []bool{false, true} {
			seen = nil
			if _, err := takeOrRefund(tt.ctx, r, []gcra.Charge{hourly("p", 5, 1)}, refund); err != nil {
				t.Fatal(err)
			}
			for _, stack := range seen {
				if got := strings.Contains(stack, "TestSentByTheCaller("); got != tt.byCaller {
					t.Errorf("%s, refund %v: sent by the caller is %v; want %v", tt.name, refund, got, tt.byCaller)
				}
			}

			if len(seen) == 0 {
				t.Errorf("%s: nothing was sent", tt.name)
			}
		}
	}
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
