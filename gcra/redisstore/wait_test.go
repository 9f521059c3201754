package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// waitURL makes this test binary a process whose goroutines take turns, on the Redis of
// this URL.
const waitURL = "REDISSTORE_TEST_WAIT_URL"

const waiters = 20 // goroutines of such a process

// waitingProcess reads the number of calls of each goroutine and writes a line for each
// call: the goroutine, and the time of Redis.
func waitingProcess(url string, in io.Reader, out io.Writer) error {
	r, err := redisstore.Open(url)
	if err != nil {
		return err
	}
	defer r.Close()
	r.Timeout = patience
	o, err := redis.ParseURL(url)
	if err != nil {
		return err
	}
	client := redis.NewClient(o)
	defer client.Close()
	fmt.Fprintln(out, "ready")
	var calls int
	if _, err := fmt.Fscanln(in, &calls); err != nil {
		return err
	}
	ctx := context.Background()
	var mu sync.Mutex
	var wg sync.WaitGroup
	for i := range waiters {
		wg.Go(func() {
			for range calls {
				c := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.Limit{Count: 1, Per: turn}, Cost: 1}
				if err := gcra.Wait(ctx, r, c); err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				now, err := client.Time(ctx).Result()
				if err != nil {
					fmt.Fprintln(os.Stderr, err)
					os.Exit(1)
				}
				mu.Lock()
				fmt.Fprintf(out, "%d %d\n", i, now.UnixMicro())
				mu.Unlock()
			}
		})
	}
	wg.Wait()
	return nil
}

// turn is the time between two calls of TestProcessesTakeTurns, short to keep the test
// short.
const turn = 20 * time.Millisecond

// Eight processes of 20 goroutines take turns on one Redis. By its clock, no call comes
// before its slot in the queue, and none starves: each goroutine makes its second call
// after all have made their first.
func TestProcessesTakeTurns(t *testing.T) {
	server := redistest.Start(t)
	url := server.URL() + "?read_timeout=20s"
	processes := startProcesses(t, 8, waitURL, url)
	// A queue to begin with: all goroutines wait in it before the first call.
	const queue = 100
	r := newStore(server.Client())
	r.Prefix = "rl:"
	begin, err := server.Client().Time(context.Background()).Result()
	if err != nil {
		t.Fatal(err)
	}
	for range queue {
		c := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.Limit{Count: 1, Per: turn}, Cost: 1, MaxDelay: 366 * 24 * time.Hour}
		if result, err := gcra.Take(context.Background(), r, c); err != nil || !result.Allowed {
			t.Fatalf("%+v, %v", result, err)
		}
	}
	for _, p := range processes {
		p.Write("2")
	}
	type call struct {
		caller string
		at     time.Duration
	}
	calls := make([]call, 0, 2*waiters*len(processes))
	for i, p := range processes {
		for range 2 * waiters {
			caller, at, _ := strings.Cut(p.Read(), " ")
			us, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call{fmt.Sprint(i, "/", caller), time.Duration(us) * time.Microsecond})
		}
		p.End()
	}
	slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })

	for k, c := range calls {
		if slot := time.Duration(begin.UnixMicro())*time.Microsecond + time.Duration(queue+k)*turn; c.at < slot {
			t.Errorf("call %d by %s is %v before its slot", k, c.caller, slot-c.at)
		}
	}
	seen := make(map[string]int)
	for k, c := range calls {
		// With some tolerance: waking up takes time.
		if n := seen[c.caller]; n == 1 && len(seen) < waiters*len(processes)-10 {
			t.Errorf("call %d: second call of %s after the first of only %d of %d", k, c.caller, len(seen), waiters*len(processes))
		}
		seen[c.caller]++
	}
}

// partnerURL makes this test binary a process whose goroutines call a partner, once a
// second over all processes. The value is the URL of Redis, a space and that of the
// partner.
const partnerURL = "REDISSTORE_TEST_PARTNER_URL"

// callingProcess calls the partner in turns until its input ends.
func callingProcess(urls string, in io.Reader, out io.Writer) error {
	redisURL, partner, _ := strings.Cut(urls, " ")
	r, err := redisstore.Open(redisURL)
	if err != nil {
		return err
	}
	defer r.Close()
	call := func(caller string) error {
		response, err := http.Get(partner + "/" + caller)
		if err != nil {
			return err
		}
		_, _ = io.Copy(io.Discard, response.Body)
		return response.Body.Close()
	}
	// Connect before the first call, as a process that has run for a while.
	if err := call(""); err != nil {
		return err
	}
	if _, err := gcra.Take(context.Background(), r, gcra.Charge{Subject: "warm", Policy: "p", Limit: gcra.PerSecond(1), Cost: 1}); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	var start string
	if _, err := fmt.Fscanln(in, &start); err != nil {
		return err
	}
	failed := make(chan error)
	for i := range waiters {
		go func() {
			for {
				c := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.PerSecond(1), Cost: 1}
				err := gcra.Wait(context.Background(), r, c)
				if err == nil {
					err = call(fmt.Sprint(os.Getpid(), "/", i))
				}
				if err != nil {
					failed <- err
				}
			}
		}()
	}
	go func() {
		_, err := io.Copy(io.Discard, in)
		failed <- err
	}()
	return <-failed
}

// Eight processes of 20 goroutines call a partner for half a minute. The calls arrive a
// second apart, to a millisecond, and none starves: no goroutine calls a second time
// before all have called.
func TestPartnerSeesTurns(t *testing.T) {
	if os.Getenv("RATELIMIT_LONG") == "" {
		t.Skip("takes half a minute of an idle machine; make long runs it")
	}
	server := redistest.Start(t)
	type call struct {
		caller string
		at     time.Time // Redis uses the same clock
	}
	var mu sync.Mutex
	var calls []call
	partner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Now()
		if r.URL.Path != "/" {
			mu.Lock()
			calls = append(calls, call{r.URL.Path, at})
			mu.Unlock()
		}
	}))
	defer partner.Close()
	processes := startProcesses(t, 8, partnerURL, server.URL()+" "+partner.URL)
	// Two turns in the queue, in which all goroutines make their first call of Wait.
	queue := newStore(server.Client())
	queue.Prefix = "rl:"
	turns := gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.PerSecond(1), Cost: 1, MaxDelay: 366 * 24 * time.Hour}
	gcratest.MustTake(t, queue, turns)
	gcratest.MustTake(t, queue, turns)
	for _, p := range processes {
		p.Write("go")
	}
	time.Sleep(33 * time.Second)
	for _, p := range processes {
		p.End()
	}
	mu.Lock()
	defer mu.Unlock()
	if len(calls) < 30 || len(calls) > 32 {
		t.Errorf("got %d calls; want 30 to 32", len(calls))
	}
	seen := make(map[string]bool)
	var most time.Duration
	least := time.Hour
	for i, c := range calls {
		if seen[c.caller] {
			t.Errorf("call %d: second call of %s after the first of only %d of %d", i, c.caller, len(seen), waiters*len(processes))
		}
		seen[c.caller] = true
		if i > 0 {
			gap := c.at.Sub(calls[i-1].at)
			least, most = min(least, gap), max(most, gap)
		}
	}
	t.Logf("%d calls, from %v to %v apart", len(calls), least, most)
	if least < 999*time.Millisecond {
		t.Errorf("two calls were %v apart; want at least 999ms", least)
	}
}
