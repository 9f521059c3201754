package ratelimit_test

import (
	"context"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// retries is the service config of docs/rpc.md. The backoff is for calls without a
// pushback.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": 5, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// With a retry policy grpc-go sends a denied call again, and not before its pushback: two seconds, in which its backoff
// would have sent it three times.
func TestRetryPolicy(t *testing.T) {
	var mu sync.Mutex
	var denied, allowed []time.Time
	log := func(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
		mu.Lock()
		defer mu.Unlock()
		came := time.Now()
		resp, err := handler(ctx, req)
		if status.Code(err) == codes.ResourceExhausted {
			denied = append(denied, time.Now())
		} else {
			allowed = append(allowed, came)
		}
		return resp, err
	}

	limit := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "calls", Key: keyfunc.RemoteAddr, Limit: gcra.Limit{Count: 1, Per: 2 * time.Second, Burst: 1}})
	conn := dial(t, serve(t, new(service), grpc.ChainUnaryInterceptor(log, limit.Unary())), grpc.WithDefaultServiceConfig(retries))
	for range 2 {
		if a := call(t.Context(), conn); a.Code() != codes.OK {
			t.Fatalf("got %v; want the call to succeed, if late", a.Status)
		}
	}

	mu.Lock()
	defer mu.Unlock()
	if len(denied) != 1 || len(allowed) != 2 || allowed[1].Sub(denied[0]) < 2*time.Second {
		t.Errorf("got attempts denied at %v, allowed at %v; want one denied, and the next one after its pushback", denied, allowed)
	}
}
