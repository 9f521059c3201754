package redisstore_test

import (
	"context"
	"errors"
	"fmt"
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
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// A panic in a hook of the client is an error of its batch, whether the caller or a
// goroutine sends it, and later batches are sent.
func TestPanicInAHook(t *testing.T) {
	server := redistest.Any(t)
	for _, inline := range []bool{false, true} {
		client := newClient(t, &redis.Options{Addr: server.Options().Addr, ContextTimeoutEnabled: inline, PoolTimeout: time.Second})
		var calls atomic.Int64
		client.AddHook(scriptHook(func(redis.Cmder) error {
			if calls.Add(1) == 1 {
				panic("hook")
			}
			return nil
		}))

		r := newStore(t, client, config{})
		r.Mark(time.Second) // in a goroutine of its own, where a panic would end the program
		calls.Store(0)
		if _, err := gcra.Take(t.Context(), r, hourly("a", 1)); err == nil || !strings.Contains(err.Error(), "panic: hook") {
			t.Errorf("inline %v: got %v; want the panic as an error", inline, err)
		}
		if res, err := gcra.Take(t.Context(), r, hourly("a", 1)); err != nil || !res.Allowed {
			t.Errorf("inline %v, afterwards: got %+v, %v; want allowed", inline, res, err)
		}
	}
}

// A server that does not reply delays no call by more than the Timeout, whatever the
// timeouts of the client, and the error wraps DeadlineExceeded. The store recovers
// with the server.
func TestBlackhole(t *testing.T) {
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	for name, r := range map[string]*redisstore.Store{
		"go-redis's defaults": storeOn(t, newClient(t, &redis.Options{Addr: proxy.Addr}), config{}),
		"no deadlines": storeOn(t, newClient(t, &redis.Options{Addr: proxy.Addr, ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond,
			ReadTimeout: -2, WriteTimeout: -2}), config{}),
		"Open": openStore(t, "redis://"+proxy.Addr, config{}),
	} {
		t.Run(name, func(t *testing.T) {
			recovers := func() {
				proxy.Pass()
				redistest.Eventually(t, patience, "the store to answer", func() bool { return answers(r) })
			}

			recovers()
			proxy.Blackhole()
			start := time.Now()

			redistest.Together(20, func(i int) {
				for call := range 3 {
					_, err := gcra.Take(context.WithoutCancel(t.Context()), r, hourly(fmt.Sprint(i), 100)) // so a caller may send
					open := call > 0 && errors.Is(err, redisstore.ErrUnavailable)                          // the breaker, after three failures
					if !errors.Is(err, context.DeadlineExceeded) && !open {
						t.Errorf("call %d: got %v; want DeadlineExceeded", call, err)
					}
				}
			})

			if d := time.Since(start); d < 50*time.Millisecond || d > 4*time.Second {
				t.Errorf("3 calls in a row took %v; want about 150ms", d)
			}
			recovers()
		})
	}
}

// A function of the client that takes long, such as one that fetches a token for a password, delays no call by more than the
// Timeout either.
func TestSlowCredentials(t *testing.T) {
	server := redistest.Start(t)
	r := storeOn(t, newClient(t, &redis.Options{Addr: server.Addr, ContextTimeoutEnabled: true, PoolTimeout: 50 * time.Millisecond,
		CredentialsProvider: func() (string, string) { time.Sleep(5 * time.Second); return "", "" }}), config{})

	start := time.Now()
	_, err := gcra.Take(context.WithoutCancel(t.Context()), r, hourly("a", 1)) // so the caller may send
	if took := time.Since(start); !errors.Is(err, context.DeadlineExceeded) || took > 4*time.Second {
		t.Errorf("got %v after %v; want DeadlineExceeded after about 50ms", err, took)
	}
}

// stuckConn is a connection whose writes wait while its lock is held.
type stuckConn struct {
	net.Conn
	stuck *sync.RWMutex
	wrote *atomic.Int64 // writes begun
}

func (c stuckConn) Write(b []byte) (int, error) {
	c.wrote.Add(1)
	c.stuck.RLock()
	defer c.stuck.RUnlock()
	return c.Conn.Write(b)
}

// A batch whose write is stuck beyond the Timeout keeps its keys, while its callers
// send other requests: when the write goes on, it charges what it was sent for.
func TestStuckWriteKeepsItsKeys(t *testing.T) {
	server := redistest.Start(t)

	var stuck sync.RWMutex
	var wrote atomic.Int64
	client := newClient(t, &redis.Options{
		Addr: server.Addr, ReadTimeout: patience, WriteTimeout: patience,
		Dialer: func(ctx context.Context, network, addr string) (net.Conn, error) {
			conn, err := new(net.Dialer).DialContext(ctx, network, addr)
			return stuckConn{conn, &stuck, &wrote}, err
		},
	})

	r := newStore(t, client, config{})
	gcratest.MustTake(t, r, hourly("first", 1))
	r = newStore(t, client, config{Timeout: 20 * time.Millisecond, Logger: quiet})

	// 256 keys of 250 bytes are more than the client's buffer.
	long := strings.Repeat("x", 60)
	charges := func(round int) (all []gcra.Charge) {
		for i := range 256 {
			c := hourly(fmt.Sprint(round, " ", i), 10)
			c.Subject, c.Policy = "s"+long, fmt.Sprint(c.Subject, long)[:60]
			all = append(all, c)
		}
		return all
	}

	stuck.Lock()
	begun := wrote.Load()
	for round := range 2 { // both batches that may be in flight
		if _, err := r.Take(t.Context(), charges(round)); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("round %d: got %v; want DeadlineExceeded", round, err)
		}
	}

	redistest.Eventually(t, patience, "a write to begin", func() bool { return wrote.Load() > begun })
	after := newStore(t, anyRedis(t), config{}) // uses the memory that callers have given back
	for round := range 20 {
		if _, err := after.Take(t.Context(), charges(100+round)); err != nil {
			t.Fatal(err)
		}
	}

	stuck.Unlock()

	// The script runs when all of its keys have arrived.
	redistest.Eventually(t, patience, "the charges", func() bool {
		return len(redistest.Keys(t, server.Client(), r.Prefix())) >= 256
	})
	for _, key := range redistest.Keys(t, server.Client(), r.Prefix()) {
		if !strings.HasPrefix(key, r.Prefix()+"{s"+long+"}:0%20") && !strings.HasPrefix(key, r.Prefix()+"{s"+long+"}:1%20") {
			t.Errorf("got key %q; want those of the two calls only", key)
		}
	}
}

// When its context ends, Take returns at once, and the charge is made. A refund that overtakes it finds nothing to give back, so
// it stays charged. The cache denies nothing for that.
func TestRefundOvertakesATake(t *testing.T) {
	client := newClient(t, &redis.Options{Addr: redistest.Start(t).Addr})
	r := settled(t, newStore(t, client, config{DenialTTL: time.Hour}))
	held, release := make(chan struct{}), make(chan struct{})
	var calls atomic.Int64
	client.AddHook(scriptHook(func(redis.Cmder) error {
		if calls.Add(1) == 1 {
			close(held)
			<-release
		}
		return nil
	}))

	ctx, leave := context.WithCancel(t.Context())
	left := make(chan error)
	go func() {
		_, err := gcra.Take(ctx, r, hourly("s", 3))
		left <- err
	}()
	<-held
	leave()
	if err := <-left; !errors.Is(err, context.Canceled) {
		t.Fatalf("got %v; want %v", err, context.Canceled)
	}
	if err := r.Refund(t.Context(), []gcra.Charge{hourly("s", 3)}); err != nil {
		t.Fatal(err)
	}
	close(release)

	redistest.Eventually(t, patience, "the take", func() bool { return spent(t, r, "s", 3) == 1 })
	for i, want := range []bool{true, true, false, false} {
		if res, err := gcra.Take(t.Context(), r, hourly("s", 3)); err != nil || res.Allowed != want {
			t.Errorf("afterwards, take %d: got %+v, %v; want allowed %v", i, res, err, want)
		}
	}
}

// An idle store has no goroutine, also after failures.
func TestIdleStoreHasNoGoroutines(t *testing.T) {
	base := goleak.IgnoreCurrent()
	t.Cleanup(func() { goleak.VerifyNone(t, base) })
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	r := openStore(t, "redis://"+proxy.Addr, config{})
	for _, fault := range []func(){proxy.Pass, proxy.Blackhole, proxy.Refuse, proxy.Pass} {
		fault()
		redistest.Together(30, func(i int) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Duration(i)*time.Millisecond)
			defer cancel()
			_, _ = gcra.Take(ctx, r, hourly(fmt.Sprint(i), 100)) // may fail
		})
	}
}
