package test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"os"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/outbound/slidinglog"
	"github.com/seed-e377111c/ratelimit/outbound/turns"
)

// callingProcess makes this test binary a process that calls a partner. The value is a calling in JSON.
const callingProcess = "OUTBOUND_TEST_CALLING_PROCESS"

// calling is what the callers of a process do: they call the partner again and again, as its limits allow.
type calling struct {
	Redis, Partner string // URLs
	Log            bool   // the store is a slidinglog.Store
	Limits         []gcra.Limit
	Callers        int
	Timeout        time.Duration // of the store; 0 is its default

	Take     time.Duration // if set, each caller uses Store.Take so often; otherwise Turns.Do
	Patience time.Duration // of Turns.Do; 0 is without bound
	Deadline bool          // Patience is that of the call's context, not MaxWait
	Again    time.Duration // from a *turns.WaitError to the next call; 0 means its RetryAfter

	On, Off time.Duration // if set, callers ask for a time of On and then rest for Off, and so on
}

// failures counts why a caller got no turn.
type failures struct{ Denied, Store int }

// callPartner calls from the first line of its input to the end. It prints a line when it is ready, and
// its failures at the end.
func callPartner(arg string, in io.Reader, out io.Writer) error {
	logging.Disable()
	var c calling
	if err := json.Unmarshal([]byte(arg), &c); err != nil {
		return err
	}
	store, err := c.open()
	if err != nil {
		return err
	}

	fmt.Fprintln(out, "ready")
	lines := bufio.NewReader(in)
	if _, err := lines.ReadString('\n'); err != nil {
		return nil // the test has ended
	}

	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		_, _ = io.Copy(io.Discard, lines)
		cancel()
	}()

	queue := turns.Turns{Store: store}
	for i, l := range c.Limits {
		charge := gcra.Charge{Subject: "partner", Policy: fmt.Sprint(i), Limit: l, Cost: 1}
		if !c.Deadline {
			charge.MaxWait = c.Patience
		}
		queue.Charges = append(queue.Charges, charge)
	}

	var mu sync.Mutex
	var failed failures
	begin := time.Now()
	var running sync.WaitGroup
	for i := range c.Callers {
		running.Go(func() {
			url := fmt.Sprint(c.Partner, "/", os.Getpid(), "/", i)
			for ctx.Err() == nil {
				err := c.turn(ctx, queue, url)

				wait := c.Take
				if err != nil && ctx.Err() == nil {
					mu.Lock()
					wait = max(c.note(&failed, err), wait)
					mu.Unlock()
				}

				if at := time.Since(begin) + wait; c.Off > 0 && at%(c.On+c.Off) > c.On {
					wait += c.On + c.Off - at%(c.On+c.Off)
				}

				select {
				case <-time.After(wait):
				case <-ctx.Done():
				}
			}
		})
	}

	running.Wait()
	return json.NewEncoder(out).Encode(failed)
}

func (c calling) open() (gcra.Store, error) {
	if c.Log {
		options, err := redis.ParseURL(c.Redis)
		if err != nil {
			return nil, err
		}
		log, err := slidinglog.New(redis.NewClient(options), slidinglog.Config{Timeout: c.Timeout})
		if err != nil {
			return nil, err
		}
		return log, log.Ping(context.Background())
	}

	store, err := redisstore.Open(c.Redis, redisstore.Config{Timeout: c.Timeout, Logger: slog.New(slog.DiscardHandler)})
	if err != nil {
		return nil, err
	}
	return store, store.Ping(context.Background())
}

// turn takes a turn and calls the partner.
func (c calling) turn(ctx context.Context, queue turns.Turns, url string) error {
	call := func(context.Context) error {
		response, err := http.Get(url)
		if err != nil {
			return err
		}
		_, err = io.Copy(io.Discard, response.Body)
		return errors.Join(err, response.Body.Close())
	}

	if c.Take > 0 {
		allowed, err := queue.Store.Take(ctx, slices.Clone(queue.Charges))
		if !allowed || err != nil {
			return err
		}
		return call(ctx)
	}

	if c.Deadline {
		patience, cancel := context.WithTimeout(ctx, c.Patience)
		defer cancel()
		return queue.Do(patience, func(context.Context) error { return call(ctx) })
	}
	return queue.Do(ctx, call)
}

// note counts an error and returns when to ask again.
func (c calling) note(failed *failures, err error) time.Duration {
	var denied *turns.WaitError
	if !errors.As(err, &denied) {
		failed.Store++
		return 50 * time.Millisecond
	}
	failed.Denied++
	if c.Again > 0 {
		return c.Again
	}
	return denied.RetryAfter()
}

// callers are processes that call a partner.
type callers []*redistest.Process

// startCallers starts n processes and returns when each is ready.
func startCallers(t *testing.T, n int, c calling) callers {
	t.Helper()
	arg, err := json.Marshal(c)
	if err != nil {
		t.Fatal(err)
	}
	all := make(callers, n)
	for i := range all {
		all[i] = redistest.StartProcess(t, callingProcess, string(arg))
	}
	for _, p := range all {
		if got := p.Read(); got != "ready" {
			t.Fatalf("a process writes %q; want ready", got)
		}
	}
	return all
}

// call lets them call, and returns when they began.
func (all callers) call() time.Time {
	begin := time.Now()
	for _, p := range all {
		p.Write("call")
	}
	return begin
}

// end ends them and returns the sum of their failures.
func (all callers) end(t *testing.T) (sum failures) {
	t.Helper()
	for _, p := range all {
		p.CloseInput()
	}
	for _, p := range all {
		var f failures
		if err := json.Unmarshal([]byte(p.Read()), &f); err != nil {
			t.Fatal(err)
		}
		sum.Denied += f.Denied
		sum.Store += f.Store
		p.End()
	}
	return sum
}
