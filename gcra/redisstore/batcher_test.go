package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// observed is a client hook that sees each call of the script on its way, and
// may fail it.
type observed struct {
	calls  atomic.Int64
	onCall func(call int64, args []any) error
}

func (o *observed) DialHook(next redis.DialHook) redis.DialHook {
	return func(ctx context.Context, network, addr string) (net.Conn, error) { return next(ctx, network, addr) }
}

func (o *observed) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		if name := cmd.Name(); name == "evalsha" || name == "eval" {
			if err := o.onCall(o.calls.Add(1), cmd.Args()); err != nil {
				cmd.SetErr(err)
				return err
			}
		}
		return next(ctx, cmd)
	}
}

func (o *observed) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

// crowd runs f for n callers at once and waits for all.
func crowd(n int, f func(i int)) {
	var wg sync.WaitGroup
	start := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-start
			f(i)
		})
	}
	close(start)
	wg.Wait()
}

// Callers that come while others wait for Redis go together: however many they
// are, they make a handful of trips, and each is decided on its own.
func TestCallersShareTrips(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	client := redis.NewClient(&redis.Options{Addr: proxy.Addr})
	t.Cleanup(func() { client.Close() })
	r := newStore(client)
	if _, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: "warm", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}); err != nil {
		t.Fatal(err)
	}
	seen := &observed{onCall: func(int64, []any) error { return nil }}
	client.AddHook(seen)
	proxy.Delay(50 * time.Millisecond)
	const callers, keys = 400, 4
	var admitted [keys]atomic.Int64
	crowd(callers, func(i int) {
		res, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i % keys), Policy: "p", Limit: gcra.PerHour(20), Cost: 1})
		if err != nil {
			t.Error(err)
		}
		if res.Allowed {
			admitted[i%keys].Add(1)
		}
	})
	for i := range admitted {
		if n := admitted[i].Load(); n != 20 {
			t.Errorf("key %d admitted %d; want 20", i, n)
		}
	}
	if n := seen.calls.Load(); n > callers/10 {
		t.Errorf("%d callers made %d trips; want them shared", callers, n)
	}
}

// A batch is bounded, however many wait for it.
func TestBatchesAreBounded(t *testing.T) {
	client := redistest.Any(t)
	var most, longest atomic.Int64
	gate := make(chan struct{})
	seen := &observed{onCall: func(call int64, args []any) error {
		if call <= 2 {
			<-gate // until the others wait
		}
		bytes := 0
		keys := args[2].(int)
		for _, key := range args[3 : 3+keys] {
			bytes += len(key.(string))
		}
		most.Store(max(most.Load(), int64(keys)))
		longest.Store(max(longest.Load(), int64(bytes)))
		return nil
	}}
	client.AddHook(seen)
	r := newStore(client)
	r.Prefix += string(make([]byte, 200))
	var coming atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		crowd(3000, func(i int) {
			coming.Add(1)
			if _, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: gcra.PerHour(20), Cost: 1}); err != nil {
				t.Error(err)
			}
		})
	}()
	redistest.Eventually(t, patience, "all callers come", func() bool { return coming.Load() == 3000 })
	close(gate)
	<-done
	if most.Load() < 50 || most.Load() > 512 || longest.Load() > 64<<10 {
		t.Errorf("the largest batch had %d keys, the longest %d bytes of them; want at most 512 keys and 65536 bytes, and not one by one", most.Load(), longest.Load())
	}
}

// An error reaches the callers of its batch and nobody else: all others are
// decided, and what was admitted is what is charged.
func TestErrorStaysInItsBatch(t *testing.T) {
	client := redistest.Any(t)
	broken := errors.New("broken on purpose")
	client.AddHook(&observed{onCall: func(call int64, _ []any) error {
		if call%3 == 0 {
			return broken
		}
		return nil
	}})
	r := newStore(client)
	var failed, admitted atomic.Int64
	c := gcra.Charge{Subject: "someone", Policy: "p", Limit: gcra.PerHour(100_000), Cost: 1}
	for range 10 {
		crowd(50, func(int) {
			switch res, err := gcra.Take(context.Background(), r, c); {
			case errors.Is(err, broken):
				failed.Add(1)
			case err != nil:
				t.Error(err)
			case res.Allowed:
				admitted.Add(1)
			}
		})
	}
	if failed.Load() == 0 || failed.Load()+admitted.Load() != 500 {
		t.Errorf("%d failed and %d passed of 500; want some of each and no other", failed.Load(), admitted.Load())
	}
	c.Cost = 0
	for {
		res, err := gcra.Take(context.Background(), r, c)
		if errors.Is(err, broken) {
			continue
		}
		if spent := 100_000 - res.Remaining; err != nil || spent != admitted.Load() {
			t.Errorf("%d were admitted, %d are charged (%v)", admitted.Load(), spent, err)
		}
		return
	}
}

// Callers whose limits are all different are each decided by their own, however
// many ride together.
func TestManyLimitsInABatch(t *testing.T) {
	client := anyRedis(t)
	const callers = 400
	gate := make(chan struct{})
	client.AddHook(&observed{onCall: func(call int64, _ []any) error {
		if call <= 2 {
			<-gate // until the others wait
		}
		return nil
	}})
	r := newStore(client)
	var coming atomic.Int64
	done := make(chan struct{})
	go func() {
		defer close(done)
		crowd(callers, func(i int) {
			coming.Add(1)
			limit := gcra.PerHour(int64(i) + 2)
			res, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: limit, Cost: 1})
			if err != nil || res.Remaining != limit.Count-1 {
				t.Errorf("limit %v: got %+v, %v; want %d remaining", limit, res, err, limit.Count-1)
			}
		})
	}()
	redistest.Eventually(t, patience, "all callers come", func() bool { return coming.Load() == callers })
	close(gate)
	<-done
	for i := range callers {
		limit := gcra.PerHour(int64(i) + 2)
		res, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: limit})
		if err != nil || res.Remaining != limit.Count-1 {
			t.Errorf("limit %v: afterwards %+v, %v; want %d remaining", limit, res, err, limit.Count-1)
		}
	}
}

// A store without a client says so, and crashes nobody.
func TestNoClient(t *testing.T) {
	for name, r := range map[string]*redisstore.Store{
		"zero":      {},
		"nil":       redisstore.New(nil),
		"typed nil": redisstore.New((*redis.Client)(nil)),
	} {
		_, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: "a", Policy: "p", Limit: gcra.PerHour(1), Cost: 1})
		if err == nil || !strings.Contains(err.Error(), "client is nil") {
			t.Errorf("%s: got %v; want an error about the client", name, err)
		}
		if r.Local() == nil {
			t.Errorf("%s: no local store", name)
		}
	}
}

// A panic in a hook of the client's is an error of the batch it hit, whoever
// drives, and the lane goes on.
func TestPanicOnTheWay(t *testing.T) {
	server := redistest.Any(t)
	for _, prompt := range []bool{false, true} {
		client := newClient(t, &redis.Options{Addr: server.Options().Addr, ContextTimeoutEnabled: prompt, PoolTimeout: time.Second})
		client.AddHook(&observed{onCall: func(call int64, _ []any) error {
			if call == 1 {
				panic("hook")
			}
			return nil
		}})
		r := newStore(client)
		c := gcra.Charge{Subject: "a", Policy: "p", Limit: gcra.PerHour(1), Cost: 1}
		if _, err := gcra.Take(context.Background(), r, c); err == nil || !strings.Contains(err.Error(), "panic: hook") {
			t.Errorf("prompt %v: got %v; want the panic as an error", prompt, err)
		}
		if res, err := gcra.Take(context.Background(), r, c); err != nil || !res.Allowed {
			t.Errorf("prompt %v: afterwards %+v, %v; want admitted", prompt, res, err)
		}
	}
}

// A dialer that hangs costs a caller the Timeout and no more, also one that
// drives its own batch on a client that honours deadlines.
func TestHangingDial(t *testing.T) {
	hang := make(chan struct{})
	defer close(hang)
	client := newClient(t, &redis.Options{
		ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond, DialTimeout: patience, DialerRetries: 1,
		Dialer: func(context.Context, string, string) (net.Conn, error) {
			<-hang
			return nil, errors.New("hung")
		},
	})
	r := redisstore.New(client)
	r.Logger = slog.New(slog.DiscardHandler)
	for range 5 {
		begin := time.Now()
		_, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: "a", Policy: "p", Limit: gcra.PerHour(1), Cost: 1})
		if took := time.Since(begin); err == nil || took > patience/4 {
			t.Errorf("got %v after %v; want an error after about 50ms", err, took)
		}
	}
}

// A damaged bucket fails nobody who rides with it.
func TestDamagedBucketFailsNoNeighbour(t *testing.T) {
	client := redistest.Any(t)
	r := newStore(client)
	ctx := context.Background()
	for i, value := range []string{"abc", "nan", "inf", "-1", "1e300", ""} {
		if err := client.Set(ctx, r.Prefix+fmt.Sprintf("{%d}:p", i), value, 0).Err(); err != nil {
			t.Fatal(err)
		}
	}
	if err := client.LPush(ctx, r.Prefix+"{6}:p", "a", "list").Err(); err != nil {
		t.Fatal(err)
	}
	crowd(200, func(i int) {
		res, err := gcra.Take(ctx, r, gcra.Charge{Subject: fmt.Sprint(i), Policy: "p", Limit: gcra.PerHour(20), Cost: 1})
		if err != nil || i > 6 && !res.Allowed {
			t.Errorf("caller %d: %+v, %v", i, res, err)
		}
	})
}
