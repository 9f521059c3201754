package gcra_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

var everySecond = gcra.Limit{Count: 1, Per: time.Second}

// Who comes first goes first, and each has the limit's interval for itself.
func TestWaitTakesTurns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		begin := time.Now()
		var mu sync.Mutex
		var order []int
		for i := range 5 {
			go func() {
				if err := gcra.Wait(t.Context(), m, gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}); err != nil {
					t.Error(err)
				}
				mu.Lock()
				defer mu.Unlock()
				order = append(order, i)
				if got, want := time.Since(begin), time.Duration(i)*time.Second; got != want {
					t.Errorf("caller %d goes after %v; want %v", i, got, want)
				}
			}()
			synctest.Wait() // the next caller comes when this one is in the queue
		}
		time.Sleep(time.Minute)
		synctest.Wait()
		if want := []int{0, 1, 2, 3, 4}; !slices.Equal(order, want) {
			t.Errorf("got order %v; want %v", order, want)
		}
	})
}

// Of two windows the one with the longer queue decides, and the other is
// charged in the same step.
func TestWaitForTwoWindows(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		charges := []gcra.Charge{
			{Subject: "partner", Policy: "fast", Limit: gcra.Limit{Count: 25, Per: 5 * time.Second}, Cost: 1},
			{Subject: "partner", Policy: "slow", Limit: gcra.PerMinute(300).WithBurst(30), Cost: 1},
		}
		begin := time.Now()
		for range 40 {
			if err := gcra.Wait(t.Context(), m, charges...); err != nil {
				t.Fatal(err)
			}
		}
		// 25 at once, then one in 200 ms; the other window would have let 30 go.
		if got, want := time.Since(begin), 15*200*time.Millisecond; got != want {
			t.Errorf("40 calls took %v; want %v", got, want)
		}
	})
}

// Who would have to wait too long is told so at once and charged nothing.
func TestWaitTooLong(t *testing.T) {
	const s = time.Second
	c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
	with := func(change func(*gcra.Charge)) gcra.Charge {
		changed := c
		change(&changed)
		return changed
	}
	for _, tt := range []struct {
		name   string
		before gcra.Charge // taken three times; the fourth waits for 3 s
		charge gcra.Charge
		within time.Duration // of the context; 0: no deadline
		want   *gcra.WaitError
	}{
		{"MaxDelay", with(func(c *gcra.Charge) { c.MaxDelay = 2 * s }), with(func(c *gcra.Charge) { c.MaxDelay = 2 * s }), 0,
			&gcra.WaitError{Subject: "partner", Policy: "p", Needed: 3 * s, Allowed: 2 * s}},
		{"MaxWait", c, with(func(c *gcra.Charge) { c.MaxWait = 2500 * time.Millisecond }), 0,
			&gcra.WaitError{Subject: "partner", Policy: "p", Needed: 3 * s, Allowed: 2500 * time.Millisecond}},
		{"deadline", c, c, 2 * s, &gcra.WaitError{Subject: "partner", Policy: "p", Needed: 3 * s, Allowed: 2 * s}},
		{"cost above burst", c, with(func(c *gcra.Charge) { c.Cost = 2 }), 0,
			&gcra.WaitError{Subject: "partner", Policy: "p", Allowed: 366 * 24 * time.Hour, Never: true}},
		{"long enough", c, with(func(c *gcra.Charge) { c.MaxWait = 3 * s }), 0, nil},
	} {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				m := gcra.NewMemory()
				for range 3 {
					queued := tt.before
					if queued.MaxDelay == 0 {
						queued.MaxDelay = 366 * 24 * time.Hour
					}
					if r, err := gcra.Take(t.Context(), m, queued); err != nil || !r.Allowed {
						t.Fatalf("before: %+v, %v", r, err)
					}
				}
				ctx := t.Context()
				if tt.within > 0 {
					var cancel context.CancelFunc
					ctx, cancel = context.WithTimeout(ctx, tt.within)
					defer cancel()
				}
				begin := time.Now()
				err := gcra.Wait(ctx, m, tt.charge)
				if tt.want == nil {
					if err != nil || time.Since(begin) != 3*s {
						t.Errorf("got %v after %v; want to go after 3s", err, time.Since(begin))
					}
					return
				}
				var got *gcra.WaitError
				if !errors.As(err, &got) || *got != *tt.want || !errors.Is(err, gcra.ErrWouldWait) {
					t.Errorf("got %#v; want %#v", err, tt.want)
				}
				if time.Since(begin) != 0 {
					t.Errorf("was told after %v; want at once", time.Since(begin))
				}
				peek := c
				peek.Cost, peek.MaxDelay = 0, 366*24*time.Hour
				if r, err := gcra.Take(t.Context(), m, peek); err != nil || r.ResetAfter != 3*s {
					t.Errorf("afterwards the bucket is full in %v (%v); want 3s as before", r.ResetAfter, err)
				}
			})
		})
	}
}

// Who gives up while waiting returns at once. The slot stays taken: the next in
// the queue keeps its own.
func TestWaitGivesUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := gcra.NewMemory()
		c := gcra.Charge{Subject: "partner", Policy: "p", Limit: everySecond, Cost: 1}
		if err := gcra.Wait(t.Context(), m, c); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(t.Context())
		begin := time.Now()
		time.AfterFunc(300*time.Millisecond, cancel)
		if err := gcra.Wait(ctx, m, c); !errors.Is(err, context.Canceled) || time.Since(begin) != 300*time.Millisecond {
			t.Errorf("got %v after %v; want context.Canceled after 300ms", err, time.Since(begin))
		}
		if err := gcra.Wait(t.Context(), m, c); err != nil || time.Since(begin) != 2*time.Second {
			t.Errorf("the next: got %v after %v; want to go after 2s", err, time.Since(begin))
		}
	})
}

// waitURL makes this test binary a process whose goroutines take turns.
const waitURL = "GCRA_TEST_WAIT_URL"

const waiters = 20 // goroutines of such a process

// waitingChild reads how many calls each goroutine is to make, has them take
// turns, and writes a line for each call: who made it and Redis's time.
func waitingChild(url string, in io.Reader, out io.Writer) error {
	r, err := gcra.Open(url)
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
