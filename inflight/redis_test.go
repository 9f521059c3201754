package inflight_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"runtime"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/inflight"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

func TestMain(m *testing.M) {
	children()
	parallel.AtMost(6) // they wait for what servers do meanwhile
	logging.Disable()  // go-redis logs each dial that fails
	os.Exit(diagtest.Quiet(m).Run())
}

const (
	tenant = "tenant:7"
	ample  = 10 * time.Second
)

// open returns a limiter as a server has it.
func open(t testing.TB, url string, cfg inflight.Config) *inflight.Limiter {
	t.Helper()
	l, err := inflight.Open(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = l.Close(context.Background()) })
	return l
}

// Slots are shared by servers, and free at once after Release and Close.
func TestRedisSlots(t *testing.T) {
	url := redistest.Start(t).URL()
	a, b := open(t, url, inflight.Config{Timeout: time.Second}), open(t, url, inflight.Config{Timeout: time.Second})
	ctx := t.Context()
	acquire := func(l *inflight.Limiter, n int, want error) *inflight.Slot {
		t.Helper()
		s, err := l.AcquireN(ctx, tenant, n, 3)
		if !errors.Is(err, want) || (err == nil) != (s != nil) {
			t.Fatalf("got slot %v, error %v; want error %v", s, err, want)
		}
		return s
	}

	two := acquire(a, 2, nil)
	acquire(b, 2, inflight.ErrFull)
	one := acquire(b, 1, nil)
	acquire(a, 1, inflight.ErrFull)

	two.Release()
	two.Release()
	slot, err := b.Wait(ctx, tenant, 3)
	if err != nil {
		t.Fatal(err)
	}
	one.Release()
	slot.Release()

	var last [3]*inflight.Slot
	for i := range last {
		if last[i], err = a.Wait(ctx, tenant, 3); err != nil {
			t.Fatal(err)
		}
	}
	if err := a.Close(ctx); err != nil {
		t.Error(err)
	}
	three := acquire(b, 3, nil)
	acquire(a, 1, inflight.ErrClosed)
	last[0].Release()
	acquire(b, 1, inflight.ErrFull)
	three.Release()
	if err := b.Close(ctx); err != nil {
		t.Error(err)
	}
}

// traffic has several goroutines on each server acquire, hold and release slots of one key until stop is closed, and
// returns how many ran at once at most, and how many ran in all.
func traffic(servers []*inflight.Limiter, workers, most int, stop <-chan struct{}) (peak, served int64) {
	var running, highest, all atomic.Int64
	var wg sync.WaitGroup
	for _, l := range servers {
		for range workers {
			wg.Go(func() {
				for {
					select {
					case <-stop:
						return
					case <-time.After(rand.N(4 * time.Millisecond)):
					}
					slot, err := l.Acquire(context.Background(), tenant, most)
					if err != nil {
						continue
					}
					all.Add(1)
					for n := running.Add(1); ; {
						if old := highest.Load(); n <= old || highest.CompareAndSwap(old, n) {
							break
						}
					}
					time.Sleep(rand.N(8 * time.Millisecond))
					running.Add(-1)
					slot.Release()
				}
			})
		}
	}
	wg.Wait()
	return highest.Load(), all.Load()
}

// during runs traffic for as long as f takes, and returns what it does.
func during(servers []*inflight.Limiter, most int, f func()) (peak, served int64) {
	stop := make(chan struct{})
	go func() {
		defer close(stop)
		f()
	}()
	return traffic(servers, 4, most, stop)
}

// isFree waits until Redis holds no slot of the key, as a new server sees it.
func isFree(t *testing.T, url string, most int) {
	t.Helper()
	l := open(t, url, inflight.Config{Timeout: time.Second})
	redistest.Eventually(t, ample, "all slots to be free", func() bool {
		slot, err := l.AcquireN(t.Context(), tenant, most, most)
		slot.Release()
		return err == nil
	})
}

// confusing is a hook that delays commands at random, so that they overtake each other, and sends some of them again later.
type confusing struct{ client *redis.Client }

func (confusing) DialHook(next redis.DialHook) redis.DialHook { return next }

func (confusing) ProcessPipelineHook(next redis.ProcessPipelineHook) redis.ProcessPipelineHook {
	return next
}

func (c confusing) ProcessHook(next redis.ProcessHook) redis.ProcessHook {
	return func(ctx context.Context, cmd redis.Cmder) error {
		time.Sleep(rand.N(10 * time.Millisecond))
		err := next(ctx, cmd)
		// After it, or Redis would take the copy first, and answer the call with OLD.
		if rand.IntN(3) == 0 {
			args := cmd.Args()
			go func() {
				time.Sleep(rand.N(50 * time.Millisecond))
				_ = c.client.Do(context.Background(), args...).Err()
			}()
		}
		return err
	}
}

// Whatever the network does to calls, no more than Max run, and afterwards all slots are free.
func TestNetworkFaults(t *testing.T) {
	t.Parallel()
	const most = 5
	for name, fault := range map[string]func(p *redistest.Proxy){
		"late":       func(p *redistest.Proxy) { p.DelayBetween(0, 15*time.Millisecond) },
		"lost":       func(p *redistest.Proxy) { p.Lose(0.05, 0.05) },
		"sent again": func(p *redistest.Proxy) { p.Resend(0.1, 60*time.Millisecond) },
		"reply lost": func(p *redistest.Proxy) { p.DropReply(3) },
		"reset":      func(p *redistest.Proxy) { p.Reset() },
		"cut":        func(p *redistest.Proxy) { p.CutAfter(200) },
		"gone":       func(p *redistest.Proxy) { p.Refuse() },
		"no answers": func(p *redistest.Proxy) { p.Blackhole() },
		"half open":  func(p *redistest.Proxy) { p.HalfOpen() },
		"overtaking": func(*redistest.Proxy) {},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			server := redistest.Start(t)
			var servers []*inflight.Limiter
			var proxies []*redistest.Proxy
			for range 3 {
				p := redistest.NewProxy(t, server.Addr)
				client := redis.NewClient(&redis.Options{Addr: p.Addr, ContextTimeoutEnabled: true, MaxRetries: -1, DialTimeout: time.Second})
				cfg := inflight.Config{}
				if name == "overtaking" {
					client.AddHook(confusing{server.Client()})
					cfg.Timeout = time.Second // or a busy machine answers no call in time
				}
				l, err := inflight.New(client, cfg)
				if err != nil {
					t.Fatal(err)
				}
				t.Cleanup(func() { _, _ = l.Close(context.Background()), client.Close() })
				servers, proxies = append(servers, l), append(proxies, p)
			}

			peak, served := during(servers, most, func() {
				for range 10 {
					time.Sleep(50 * time.Millisecond)
					for _, p := range proxies {
						fault(p)
					}
				}
				for _, p := range proxies {
					p.Pass()
				}
				// On a busy machine it takes longer until a call is in time again.
				for begin := time.Now(); time.Since(begin) < ample; {
					time.Sleep(700 * time.Millisecond)
					slot, err := servers[0].Acquire(t.Context(), tenant, most)
					slot.Release()
					if err == nil || errors.Is(err, inflight.ErrFull) {
						break
					}
				}
			})
			t.Logf("%d jobs, at most %d at once", served, peak)
			if peak > most || served == 0 {
				t.Errorf("%d jobs, %d at once; want some, and at most %d", served, peak, most)
			}
			isFree(t, server.URL(), most)
		})
	}
}

// FLUSHALL costs at most Max more until each server has written once.
func TestFlush(t *testing.T) {
	const most = 5
	server := redistest.Start(t)
	var servers []*inflight.Limiter
	for range 2 {
		servers = append(servers, open(t, server.URL(), inflight.Config{Timeout: time.Second})) // or a busy machine answers no call in time
	}
	peak, _ := during(servers, most, func() {
		time.Sleep(100 * time.Millisecond)
		if err := server.Client().FlushAll(t.Context()).Err(); err != nil {
			t.Error(err)
		}
		time.Sleep(100 * time.Millisecond)
	})
	if peak > 2*most {
		t.Errorf("%d ran at once; want at most %d", peak, 2*most)
	}

	peak, served := during(servers, most, func() { time.Sleep(200 * time.Millisecond) })
	if peak > most || served == 0 {
		t.Errorf("afterwards: %d jobs, %d at once; want at most %d", served, peak, most)
	}
	isFree(t, server.URL(), most)
}

// A Redis that is out of memory does not decide. What it has granted stays, and goes on when there is room.
func TestOutOfMemory(t *testing.T) {
	server := redistest.Start(t)
	l := open(t, server.URL(), inflight.Config{Timeout: time.Second, Logger: slog.New(slog.DiscardHandler)})
	slot, err := l.Acquire(t.Context(), tenant, 2)
	if err != nil {
		t.Fatal(err)
	}
	set := func(bytes string) {
		if err := server.Client().ConfigSet(t.Context(), "maxmemory", bytes).Err(); err != nil {
			t.Fatal(err)
		}
	}
	set("1")
	if _, err := l.Acquire(t.Context(), tenant, 2); err == nil || errors.Is(err, inflight.ErrFull) {
		t.Errorf("out of memory: got %v; want that it is not decided", err)
	}
	set("0")
	second, err := l.Wait(t.Context(), tenant, 2)
	if err != nil {
		t.Error(err)
	}
	slot.Release()
	second.Release()
	isFree(t, server.URL(), 2)
}

// Fifty servers share one key.
func TestFiftyServers(t *testing.T) {
	const most = 10
	server := redistest.Start(t)
	var servers []*inflight.Limiter
	for range 50 {
		servers = append(servers, open(t, server.URL(), inflight.Config{Timeout: time.Second}))
	}
	peak, served := during(servers, most, func() { time.Sleep(2 * time.Second) })
	t.Logf("%d jobs, at most %d at once", served, peak)
	if peak > most || served == 0 {
		t.Errorf("%d jobs, %d at once; want at most %d", served, peak, most)
	}
	isFree(t, server.URL(), most)
}

// One server, many keys that are held: their renewals take little of Redis.
func TestRenewalsAreCheap(t *testing.T) {
	if os.Getenv("RATELIMIT_CHAOS") != "long" {
		t.Skip("RATELIMIT_CHAOS is not long: it measures, and takes two minutes")
	}
	server := redistest.Start(t)
	l := open(t, server.URL(), inflight.Config{Timeout: 10 * time.Second})
	var held [8][12_500]*inflight.Slot
	redistest.Together(len(held), func(i int) {
		for j := range held[i] {
			slot, err := l.Wait(t.Context(), fmt.Sprint("key:", i, ":", j), 3)
			if err != nil {
				t.Error(err)
				return
			}
			held[i][j] = slot
		}
	})
	cpu := func() (seconds float64) {
		for line := range strings.Lines(server.Client().Info(t.Context(), "cpu").Val()) {
			name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
			if f, err := strconv.ParseFloat(value, 64); err == nil && (name == "used_cpu_user" || name == "used_cpu_sys") {
				seconds += f
			}
		}
		return seconds
	}
	for range 4 { // in the third and fourth all slots are older than a minute
		before, begin := cpu(), time.Now()
		time.Sleep(25 * time.Second)
		share := (cpu() - before) / time.Since(begin).Seconds()
		t.Logf("%.1f %% of a core of Redis for 100,000 keys", 100*share)
		if share > 0.10 {
			t.Errorf("the renewals of 100,000 keys take %.1f %% of a core of Redis; want at most 10", 100*share)
		}
	}
	if keys := server.Client().DBSize(t.Context()).Val(); keys < 100_000 {
		t.Errorf("Redis has %d keys; want those of all that is held", keys)
	}
	runtime.KeepAlive(held)
}
