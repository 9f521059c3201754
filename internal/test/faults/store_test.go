package faults

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"
	"github.com/redis/go-redis/v9/logging"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// ample is the Timeout where speed does not matter, and how long a test waits for
// what has to happen.
const ample = 20 * time.Second

// budget is the Timeout of stores under a fault: long enough that a busy machine
// keeps it without one.
const budget = 250 * time.Millisecond

// slack is what a busy machine may add to a wait: two cores, the race detector, and
// other tests.
const slack = 3 * time.Second

// phase is how long a fault lasts in the short form and in the long one.
func phase(short, full time.Duration) time.Duration {
	if long {
		return full
	}
	return short
}

// go-redis logs each failure.
func init() { logging.Disable() }

// silence is the Logger of limiters whose policies or stores fail on purpose.
var silence = slog.New(slog.DiscardHandler)

const (
	isAway = "code=redis-"
	isBack = "redis is available again"
)

type config = redisstore.Config

// rig is a store whose log can be read, and its Config.
type rig struct {
	*redisstore.Store
	config
	log *diagtest.Text
}

var prefixes atomic.Int64

// rigOn returns a store on a client. Where the Config has no other, the store has keys of its own and the budget as its
// Timeout.
func rigOn(t testing.TB, client redis.UniversalClient, cfg config) *rig {
	t.Helper()
	return newRig(cfg, func(cfg config) *redisstore.Store { return storeOn(t, client, cfg) })
}

// storeOn returns a store with the Config as it is.
func storeOn(t testing.TB, client redis.UniversalClient, cfg config) *redisstore.Store {
	t.Helper()
	r, err := redisstore.New(client, cfg)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

// openStore opens a URL as applications do, and closes the store when the test ends.
func openStore(t testing.TB, url string, cfg config) *redisstore.Store {
	t.Helper()
	r, err := redisstore.Open(url, cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		err := r.Close()
		// Close of a TLS connection writes an alert, and a fault may have reset it.
		if err != nil && !errors.Is(err, redis.ErrClosed) && !errors.Is(err, syscall.ECONNRESET) && !errors.Is(err, syscall.EPIPE) {
			t.Errorf("closing a store: %v", err)
		}
	})
	return r
}

// rigAt opens a URL, otherwise as rigOn.
func rigAt(t testing.TB, url string, cfg config) *rig {
	t.Helper()
	return newRig(cfg, func(cfg config) *redisstore.Store { return openStore(t, url, cfg) })
}

func newRig(cfg config, open func(config) *redisstore.Store) *rig {
	log := new(diagtest.Text)
	cfg.Logger = log.Logger()
	cfg.Prefix = cmp.Or(cfg.Prefix, fmt.Sprintf("f%d:", prefixes.Add(1)))
	cfg.Timeout = cmp.Or(cfg.Timeout, budget)
	return &rig{open(cfg), cfg, log}
}

// closing closes a client when the test ends.
func closing[C redis.UniversalClient](t testing.TB, c C) C {
	t.Cleanup(func() {
		if err := c.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("closing a client: %v", err)
		}
	})
	return c
}

// witness is a store on the rig's keys with a long Timeout, without the denial cache,
// on a connection of its own.
func (r *rig) witness(t testing.TB, client redis.UniversalClient) *redisstore.Store {
	t.Helper()
	return storeOn(t, client, config{Prefix: r.Prefix, Timeout: ample, DenialTTL: -1})
}

// daily is a charge of one unit on a bucket that hardly refills during a test.
func daily(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerDay(n), Cost: 1}
}

// spent is how many units of the charge's bucket are gone.
func spent(t testing.TB, s gcra.Store, c gcra.Charge) int64 {
	t.Helper()
	res, err := gcra.Peek(t.Context(), s, c)
	if err != nil {
		t.Fatalf("looking at %s: %v", c.Subject, err)
	}
	return c.Limit.Count - res.Remaining
}

// take takes from the store and counts the decision.
func (o *outcome) take(s gcra.Store, c gcra.Charge) (gcra.Result, error) {
	start := time.Now()
	res, err := gcra.Take(context.Background(), s, c)
	o.decided(time.Since(start))
	return res, err
}

// mustTake takes from a store that has to answer.
func mustTake(t testing.TB, s gcra.Store, charges ...gcra.Charge) []gcra.Charge {
	t.Helper()
	charges = slices.Clone(charges)
	if _, err := s.Take(context.Background(), charges); err != nil {
		t.Fatalf("taking from %s: %v", charges[0].Subject, err)
	}
	return charges
}

// passed reports whether every charge that is not a shadow is allowed.
func passed(charges []gcra.Charge) bool {
	return !slices.ContainsFunc(charges, func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow })
}

// works makes sure that the store answers before a fault is injected.
func works(t testing.TB, s gcra.Store) {
	t.Helper()
	redistest.Eventually(t, ample, "the store to work", func() bool { return answers(s) })
}

// answers reports whether the store answers.
func answers(s gcra.Store) bool { return answersFor(s, "somebody") }

func answersFor(s gcra.Store, subject string) bool {
	_, err := gcra.Take(context.Background(), s, plenty(subject))
	return err == nil
}

// plenty is a charge that is never denied in a test.
func plenty(subject string) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "plenty", Limit: gcra.PerSecond(100_000), Cost: 1}
}

// recovers waits until the store answers, and records how long that took. It fails if that is longer than within and
// slack. In the short form, on a busy machine, try after try may miss its Timeout: then it is within and ample.
func (o *outcome) recovers(t testing.TB, s gcra.Store, within time.Duration) {
	t.Helper()
	o.recoversWhen(t, within, func() bool { return answers(s) })
}

func (o *outcome) recoversWhen(t testing.TB, within time.Duration, ok func() bool) {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, within+phase(ample, slack), "recovery", ok)
	o.recovery = max(o.recovery, time.Since(start))
}

// inTime fails if a decision took longer than its budget and slack.
func (o *outcome) inTime(t testing.TB, budget time.Duration) {
	t.Helper()
	if d := time.Duration(o.longest.Load()); d > budget+slack {
		t.Errorf("the longest decision took %v; want at most %v", d, budget)
	}
}

// atMost reports allowed requests beyond a bound.
func (o *outcome) atMost(t testing.TB, allowed, bound int64, what string) {
	t.Helper()
	if over := allowed - bound; over > 0 {
		o.over.Add(over)
		t.Errorf("%s: %d allowed; want at most %d", what, allowed, bound)
	}
}

// do runs a command that has to succeed.
func do(t testing.TB, server *redistest.Server, args ...any) any {
	t.Helper()
	v, err := server.Client().Do(context.Background(), args...).Result()
	if err != nil && err != redis.Nil {
		t.Fatalf("%v on %s: %v", args, server.Addr, err)
	}
	return v
}

// holdings are the resources of this process, which must not grow in an outage.
type holdings struct{ goroutines, files int }

func held(t testing.TB) holdings {
	t.Helper()
	h := holdings{goroutines: runtime.NumGoroutine()}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil { // elsewhere only goroutines are counted
		h.files = len(entries)
	}
	return h
}

// released waits until no more than before is held, and some.
func (before holdings) released(t testing.TB, some int) {
	t.Helper()
	redistest.Eventually(t, ample, fmt.Sprintf("goroutines and files to come back to %+v", before), func() bool {
		now := held(t)
		return now.goroutines <= before.goroutines+some && now.files <= before.files+some
	})
}

// during calls f in a goroutine, again and again, until stop is called.
func during(f func()) (stop func()) {
	quit, done := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(done)
		for {
			select {
			case <-quit:
				return
			default:
				f()
			}
		}
	}()
	return sync.OnceFunc(func() { close(quit); <-done })
}

// amount is a size for the short form or the long.
func amount(short, full int) int {
	if long {
		return full
	}
	return short
}

// fields are the words of a command.
func fields(s string) (words []any) {
	for _, w := range strings.Fields(s) {
		words = append(words, w)
	}
	return words
}
