package ratelimit_test

import (
	"context"
	"fmt"
	"os"
	"strconv"
	"sync"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/metadata"
	"google.golang.org/grpc/status"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/grpc"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// retries is the service config of docs/rpc.md. The backoff is for calls without a
// pushback.
const retries = `{"methodConfig": [{"name": [{}], "retryPolicy": {
	"maxAttempts": %d, "initialBackoff": "0.1s", "maxBackoff": "1s", "backoffMultiplier": 2,
	"retryableStatusCodes": ["RESOURCE_EXHAUSTED", "UNAVAILABLE"]}}]}`

// attempt is one attempt of a call in the log of the server.
type attempt struct {
	came, left time.Time
	denied     bool
	pushback   time.Duration
}

// attempts is the log of a server: the attempts of each call, by the id that the
// client gave it.
type attempts struct {
	mu    sync.Mutex
	calls map[string][]attempt
}

// log is an interceptor outside the limiter.
func (a *attempts) log(ctx context.Context, req any, _ *grpc.UnaryServerInfo, handler grpc.UnaryHandler) (any, error) {
	md, _ := metadata.FromIncomingContext(ctx)
	stream := &trailers{ServerTransportStream: grpc.ServerTransportStreamFromContext(ctx)}
	this := attempt{came: time.Now()}
	resp, err := handler(grpc.NewContextWithServerTransportStream(ctx, stream), req)
	this.denied = status.Code(err) == codes.ResourceExhausted
	if ms := first(stream.sent, "grpc-retry-pushback-ms"); ms != "" {
		n, err := strconv.Atoi(ms)
		if err != nil {
			return nil, err
		}
		this.pushback = time.Duration(n) * time.Millisecond
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	id := first(md, "call-id")
	this.left = time.Now()
	a.calls[id] = append(a.calls[id], this)
	return resp, err
}

// trailers keeps the trailer metadata that is sent.
type trailers struct {
	grpc.ServerTransportStream
	sent metadata.MD
}

func (s *trailers) SetTrailer(md metadata.MD) error {
	s.sent = metadata.Join(s.sent, md)
	return s.ServerTransportStream.SetTrailer(md)
}

// A client of grpc-go with a retry policy, which would send twice what the limit
// allows. All its calls succeed, it sends none before the pushback of the attempt
// before, and the server admits no more than the bound. With RATELIMIT_LONG set each
// row takes 30 s in place of 2. A client on a busy machine may be slower than the limit;
// then the row is repeated with half the rate, until calls are denied.
func TestRetryPolicy(t *testing.T) {
	t.Parallel()
	duration := 2 * time.Second
	if os.Getenv("RATELIMIT_LONG") != "" {
		duration = 30 * time.Second
	}
	for _, test := range []struct {
		name        string
		callers     int
		maxAttempts int
		maxDelay    time.Duration
	}{
		// grpc-go makes at most 5 attempts, unless WithMaxCallAttempts allows more.
		{"one caller", 1, 5, 0},
		// The callers of one key race: each unit is for the first to come. So they need more attempts,
		{"many attempts", 8, 1000, 0},
		// or a queue at the server.
		{"a queue", 8, 5, time.Second},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			limit, duration := gcra.PerSecond(20).WithBurst(5), duration
			for {
				log := attempts{calls: map[string][]attempt{}}
				retry(t, &log, limit, duration, test.callers, test.maxAttempts, test.maxDelay)
				if denied := log.check(t, limit); denied > 0 || test.maxDelay > 0 || t.Failed() {
					return
				}
				if limit.Interval() > time.Second {
					t.Fatalf("no call was denied: the client did not reach %v", limit)
				}
				limit.Per, duration = 2*limit.Per, 2*duration
			}
		})
	}
}

// retry has callers make calls for a time, at twice the rate of the limit if each is fast.
func retry(t *testing.T, log *attempts, limit gcra.Limit, duration time.Duration, callers, maxAttempts int, maxDelay time.Duration) {
	interceptors := ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "calls", Key: keyfunc.RemoteAddr, Limit: limit, MaxDelay: maxDelay})
	addr := serve(t, new(service), grpc.ChainUnaryInterceptor(log.log, interceptors.Unary()))
	conn := dial(t, addr, grpc.WithDefaultServiceConfig(fmt.Sprintf(retries, maxAttempts)), grpc.WithMaxCallAttempts(maxAttempts))

	pause := limit.Interval() / 2 * time.Duration(callers) // of each caller: twice the rate together
	end := time.Now().Add(duration)
	var running sync.WaitGroup
	for caller := range callers {
		running.Go(func() {
			for n := 0; time.Now().Before(end); n++ {
				next := time.After(pause)
				id := fmt.Sprint(caller, "/", n)
				if a := call(metadata.AppendToOutgoingContext(t.Context(), "call-id", id), conn); a.Code() != codes.OK {
					t.Errorf("call %s: got %v", id, a.Status)
				}
				<-next
			}
		})
	}
	running.Wait()
}

// check compares the log with the pushbacks and with the bound, and returns how many
// attempts were denied.
func (a *attempts) check(t *testing.T, limit gcra.Limit) (denied int) {
	admitted, most := 0, 0
	var start, end time.Time
	for id, list := range a.calls {
		most = max(most, len(list))
		for i, this := range list {
			if i > 0 && this.came.Before(list[i-1].left.Add(list[i-1].pushback)) {
				t.Errorf("call %s: attempt %d came %v after a pushback of %v", id, i+1, this.came.Sub(list[i-1].left), list[i-1].pushback)
			}
			if start.IsZero() || this.came.Before(start) {
				start = this.came
			}
			if this.denied {
				denied++
				if this.pushback <= 0 {
					t.Errorf("call %s: attempt %d is denied without a pushback", id, i+1)
				}
				continue
			}
			admitted++
			if this.left.After(end) {
				end = this.left
			}
		}
	}
	if bound := limit.Burst + int64(end.Sub(start)/limit.Interval()); int64(admitted) > bound {
		t.Errorf("got %d calls admitted in %v; want at most %d", admitted, end.Sub(start), bound)
	}
	t.Logf("%v: %d calls, %d attempts denied, at most %d attempts of a call, %v",
		limit, len(a.calls), denied, most, end.Sub(start).Round(time.Millisecond))
	return denied
}
