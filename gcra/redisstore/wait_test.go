package redisstore_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/gcratest"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// partnerURL makes this test binary a process whose goroutines call a partner in turns.
// The value is the URL of Redis, the partner's and the time between two calls.
const partnerURL = "REDISSTORE_TEST_PARTNER_URL"

// A test has so many processes, each with so many goroutines.
const (
	waitingProcesses = 8
	waiters          = 20
)

// callingProcess calls the partner in turns, from the first line of its input to the end.
func callingProcess(arg string, in io.Reader, out io.Writer) error {
	args := strings.Fields(arg)
	turn, err := time.ParseDuration(args[2])
	if err != nil {
		return err
	}
	r, err := redisstore.Open(args[0], config{Timeout: patience})
	if err != nil {
		return err
	}
	defer r.Close()
	ctx := context.Background()

	call := func(caller string) error {
		response, err := http.Get(args[1] + "/" + caller)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}

	// Connect before the first call, as a process that has run for a while.
	if err := call(""); err != nil {
		return err
	}
	if _, err := gcra.Take(ctx, r, hourly("first", 100)); err != nil {
		return err
	}
	fmt.Fprintln(out, "ready")
	var start string
	if _, err := fmt.Fscanln(in, &start); err != nil {
		return err
	}

	done := make(chan error)
	for i := range waiters {
		go func() {
			for {
				err := turns.Wait(ctx, r, inTurns(turn))
				if err == nil {
					err = call(fmt.Sprint(os.Getpid(), "/", i))
				}
				if err != nil {
					done <- err
				}
			}
		}()
	}

	go func() {
		_, err := io.Copy(io.Discard, in)
		done <- err
	}()

	return <-done
}

func inTurns(turn time.Duration) gcra.Charge {
	return gcra.Charge{Subject: "partner", Policy: "p", Limit: gcra.Limit{Count: 1, Per: turn}, Cost: 1}
}

type partnerCall struct {
	caller string
	at     time.Time // Redis uses the same clock
}

// callInTurns returns the first n calls that the partner receives, in order. No call may
// come before its slot in the queue, and none may starve: each goroutine makes its second
// call after all have made their first. They begin to wait while queue turns pass.
func callInTurns(t *testing.T, turn time.Duration, queue, n int) (calls []partnerCall) {
	t.Helper()
	var mu sync.Mutex
	partner := httptest.NewServer(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
		at := time.Now()
		if r.URL.Path != "/" {
			mu.Lock()
			calls = append(calls, partnerCall{r.URL.Path, at})
			mu.Unlock()
		}
	}))

	defer partner.Close()
	server := redistest.Start(t)
	arg := fmt.Sprint(server.URL(), " ", partner.URL, " ", turn)
	processes := startProcesses(t, waitingProcesses, partnerURL, arg)

	begin, err := server.Client().Time(t.Context()).Result()
	if err != nil {
		t.Fatal(err)
	}
	r := newStore(t, server.Client(), config{Prefix: "rl:"})
	c := inTurns(turn)
	c.MaxDelay, c.MaxWait = gcra.MaxDelay, gcra.MaxDelay
	for range queue {
		gcratest.MustTake(t, r, c)
	}

	for _, p := range processes {
		p.Write("go")
	}
	redistest.Eventually(t, time.Duration(queue+n)*turn+2*patience, "the calls", func() bool {
		mu.Lock()
		defer mu.Unlock()
		return len(calls) >= n
	})

	for _, p := range processes {
		p.End()
	}
	partner.Close()
	mu.Lock()
	defer mu.Unlock()
	slices.SortFunc(calls, func(a, b partnerCall) int { return a.at.Compare(b.at) })
	calls = calls[:n]

	seen := make(map[string]int)
	const all = waiters * waitingProcesses
	for k, c := range calls {
		if slot := begin.Add(time.Duration(queue+k) * turn); c.at.Before(slot) {
			t.Errorf("call %d by %s is %v before its slot", k, c.caller, slot.Sub(c.at))
		}

		// On a busy machine some wake up too late for their turn and wait again. Without an order the first second call
		// would come after the calls of some 16.
		if n := seen[c.caller]; n == 1 && len(seen) < all*3/4 {
			t.Errorf("call %d: second call of %s after the first of only %d of %d", k, c.caller, len(seen), all)
		}
		seen[c.caller]++
	}

	return calls
}

func TestProcessesTakeTurns(t *testing.T) {
	callInTurns(t, 10*time.Millisecond, 500, 2*waiters*waitingProcesses) // a busy machine has 5 s to begin
}

// A partner that is called once a second receives the calls a second apart, to a
// millisecond.
func TestPartnerSeesTurns(t *testing.T) {
	if os.Getenv("RATELIMIT_LONG") == "" {
		t.Skip("takes half a minute of an idle machine; make long runs it")
	}
	calls := callInTurns(t, time.Second, 2, 31)
	var most time.Duration
	least := time.Hour
	for i := range calls[1:] {
		gap := calls[i+1].at.Sub(calls[i].at)
		least, most = min(least, gap), max(most, gap)
	}

	t.Logf("%d calls, from %v to %v apart", len(calls), least, most)
	if d := calls[30].at.Sub(calls[0].at); d > 32*time.Second {
		t.Errorf("30 turns took %v; want 30s", d)
	}
	if least < 999*time.Millisecond {
		t.Errorf("two calls were %v apart; want at least 999ms", least)
	}
}
