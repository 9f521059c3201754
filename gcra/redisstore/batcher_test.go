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
	"go.uber.org/goleak"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

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
	redistest.Together(callers, func(i int) {
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

// A server that takes requests and never answers costs no caller more than the
// Timeout, whatever the client's own, and the error wraps DeadlineExceeded.
// When it answers again, so does the store.
func TestBlackhole(t *testing.T) {
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	opened, err := redisstore.Open("redis://" + proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { opened.Close() })
	for name, r := range map[string]*redisstore.Store{
		"go-redis's defaults": redisstore.New(newClient(t, &redis.Options{Addr: proxy.Addr})),
		"Open":                opened,
	} {
		t.Run(name, func(t *testing.T) {
			answers := func() {
				proxy.Pass()
				redistest.Eventually(t, patience, "the store to answer", func() bool {
					_, err := gcra.Take(t.Context(), r, hourly("s", 1000))
					return err == nil
				})
			}
			answers()
			proxy.Blackhole()
			start := time.Now()
			var wg sync.WaitGroup
			for i := range 20 {
				wg.Go(func() {
					for call := range 3 {
						_, err := gcra.Take(t.Context(), r, hourly(fmt.Sprint(i), 100))
						resting := call > 0 && errors.Is(err, redisstore.ErrUnavailable) // it has failed often enough by then
						if !errors.Is(err, context.DeadlineExceeded) && !resting {
							t.Errorf("call %d: got %v; want DeadlineExceeded", call, err)
						}
					}
				})
			}
			wg.Wait()
			if d := time.Since(start); d < 50*time.Millisecond || d > 4*time.Second {
				t.Errorf("3 calls in a row took %v; want little more than 150ms", d)
			}
			answers()
		})
	}
}

// A server that is not there is an error within the Timeout.
func TestNoServer(t *testing.T) {
	server := redistest.Start(t)
	server.Kill()
	for name, open := range map[string]func() (*redisstore.Store, error){
		"one": func() (*redisstore.Store, error) { return redisstore.Open("redis://" + server.Addr) },
		"cluster": func() (*redisstore.Store, error) {
			return redisstore.Open("redis://" + server.Addr + "," + server.Addr)
		},
	} {
		r, err := open()
		if err != nil {
			t.Fatalf("%s: opening: %v; want no error before first use", name, err)
		}
		start := time.Now()
		if _, err := gcra.Take(t.Context(), r, hourly("s", 10)); err == nil || !strings.Contains(err.Error(), "redisstore: ") {
			t.Errorf("%s: got %v; want an error of redisstore", name, err)
		}
		if d := time.Since(start); d > 4*time.Second {
			t.Errorf("%s: took %v; want no more than 50ms by much", name, d)
		}
		if err := r.Close(); err != nil {
			t.Errorf("%s: Close: %v", name, err)
		}
	}
}

// A caller who leaves gets his error at once, and the charge is made all the
// same: nobody dodges one by hanging up.
func TestCallerLeaves(t *testing.T) {
	server := redistest.Start(t)
	direct := newStore(unhurried(t, server.Addr))
	for name, patient := range map[string]bool{"cancels": false, "runs out of time": true} {
		t.Run(name, func(t *testing.T) {
			proxy := redistest.NewProxy(t, server.Addr)
			r := newStore(newClient(t, &redis.Options{Addr: proxy.Addr, ReadTimeout: patience}))
			direct.Prefix = r.Prefix
			gcratest.MustTake(t, r, hourly("s", 100)) // has a connection now
			proxy.Delay(10 * time.Second)
			ctx, cancel := context.WithCancel(t.Context())
			want := context.Canceled
			if patient {
				ctx, cancel = context.WithTimeout(t.Context(), 100*time.Millisecond)
				want = context.DeadlineExceeded
			}
			defer cancel()
			answer := make(chan error)
			go func() {
				_, err := gcra.Take(ctx, r, hourly("s", 100))
				answer <- err
			}()
			charged := func() bool { return spentOf(t, direct, "s", 100) == 2 }
			if !patient {
				redistest.Eventually(t, patience, "the charge to be made", charged)
				cancel()
			}
			start := time.Now()
			if err := <-answer; !errors.Is(err, want) {
				t.Errorf("got %v; want %v", err, want)
			}
			if d := time.Since(start); d > 5*time.Second {
				t.Errorf("the answer took %v; want it at once", d)
			}
			redistest.Eventually(t, patience, "the charge to be made", charged)
			proxy.Reset() // nobody waits for the reply
		})
	}
}

// When nobody calls, no goroutine is left, whatever has happened before.
func TestRedisLeavesNoGoroutines(t *testing.T) {
	base := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, base) })
	server := redistest.Start(t)
	proxy := redistest.NewProxy(t, server.Addr)
	r, err := redisstore.Open("redis://" + proxy.Addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil {
			t.Error(err)
		}
	})
	fault := []func(){proxy.Pass, proxy.Blackhole, proxy.Refuse, proxy.Pass}
	for _, f := range fault {
		f()
		var wg sync.WaitGroup
		for i := range 30 {
			wg.Go(func() {
				ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
				defer cancel()
				_, _ = gcra.Take(ctx, r, hourly(fmt.Sprint(i), 100)) // fails or not
			})
		}
		wg.Wait()
	}
}
