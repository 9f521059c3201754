package redisstore_test

import (
	"context"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// waitURL makes this test binary a process whose goroutines take turns.
const waitURL = "GCRA_TEST_WAIT_URL"

const waiters = 20 // goroutines of such a process

// waitingChild reads how many calls each goroutine is to make, has them take
// turns, and writes a line for each call: who made it and Redis's time.
func waitingChild(url string, in io.Reader, out io.Writer) error {
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

// turn is the time between two calls of TestProcessesTakeTurns; a second would
// make a long test.
const turn = 20 * time.Millisecond

// Eight processes of twenty goroutines take turns on one Redis. By its clock
// nobody goes before the slot that the queue leaves, so k calls take k turns,
// and nobody starves: each goroutine makes its second call only after all have
// made their first.
func TestProcessesTakeTurns(t *testing.T) {
	server := redistest.Start(t)
	url := server.URL() + "?read_timeout=20s"
	var children [8]*process
	for i := range children {
		children[i] = startProcess(t, waitURL+"="+url)
	}
	for _, p := range children {
		if got := p.read(t); got != "ready" {
			t.Fatalf("a child says %q; want ready", got)
		}
	}
	// A queue to begin with, so that all have asked before anyone goes.
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
	for _, p := range children {
		p.write(t, "2")
	}
	type call struct {
		who string
		at  time.Duration
	}
	calls := make([]call, 0, 2*waiters*len(children))
	for i, p := range children {
		for range 2 * waiters {
			who, at, _ := strings.Cut(p.read(t), " ")
			us, err := strconv.ParseInt(at, 10, 64)
			if err != nil {
				t.Fatal(err)
			}
			calls = append(calls, call{fmt.Sprint(i, "/", who), time.Duration(us) * time.Microsecond})
		}
		p.end(t)
	}
	slices.SortFunc(calls, func(a, b call) int { return int(a.at - b.at) })

	for k, c := range calls {
		if slot := time.Duration(begin.UnixMicro())*time.Microsecond + time.Duration(queue+k)*turn; c.at < slot {
			t.Errorf("call %d by %s is %v before its slot", k, c.who, slot-c.at)
		}
	}
	seen := make(map[string]int)
	for k, c := range calls {
		// Some leeway: a call is seen when it has woken up, which takes time.
		if n := seen[c.who]; n == 1 && len(seen) < waiters*len(children)-10 {
			t.Errorf("call %d: %s goes again while only %d of %d have gone", k, c.who, len(seen), waiters*len(children))
		}
		seen[c.who]++
	}
}
