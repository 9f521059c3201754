package faults

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"net/http/httptest"
	"os"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// ample is the Timeout where speed is not the story, and how long a test
// waits for what is bound to happen.
const ample = 20 * time.Second

// budget is the Timeout of stores that are put to a fault: long enough that a
// busy machine keeps it while all is well.
const budget = 250 * time.Millisecond

// slack is what a busy machine may add to a wait: two cores, the race detector,
// and other tests. The long form prints what was measured.
const slack = 3 * time.Second

// phase is how long a fault lasts: short, or as the table of faults has it.
func phase(short, full time.Duration) time.Duration {
	if long {
		return full
	}
	return short
}

// The client tells of each failure on its own; the rows are about failures.
func init() { redis.SetLogger(silent{}) }

type silent struct{}

func (silent) Printf(context.Context, string, ...any) {}

// journal is a log that a test reads while it is being written.
type journal struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (j *journal) Write(p []byte) (int, error) {
	j.mu.Lock()
	defer j.mu.Unlock()
	return j.buf.Write(p)
}

// lines are those that contain the text.
func (j *journal) lines(text string) []string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return slices.DeleteFunc(strings.Split(j.buf.String(), "\n"), func(l string) bool {
		return l == "" || !strings.Contains(l, text)
	})
}

const (
	isAway = "code=redis-"
	isBack = "redis is available again"
)

// rig is a store whose log can be read, and which shares no key with others.
type rig struct {
	*redisstore.Store
	log *journal
}

var prefixes atomic.Int64

func rigOn(client redis.UniversalClient) *rig { return newRig(redisstore.New(client)) }

// rigAt opens a URL as applications do.
func rigAt(t testing.TB, url string) *rig {
	t.Helper()
	r, err := redisstore.Open(url)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := r.Close(); err != nil && !errors.Is(err, redis.ErrClosed) {
			t.Errorf("closing a store: %v", err)
		}
	})
	return newRig(r)
}

func newRig(r *redisstore.Store) *rig {
	log := new(journal)
	r.Logger = slog.New(slog.NewTextHandler(log, nil))
	r.Prefix = fmt.Sprintf("f%d:", prefixes.Add(1))
	r.Timeout = budget
	return &rig{r, log}
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

// witness is a store that sees what the rig's Redis holds: patient, without
// a mirror, on a connection of its own.
func (r *rig) witness(client redis.UniversalClient) *redisstore.Store {
	w := redisstore.New(client)
	w.Prefix, w.Timeout, w.NoDenialCache = r.Prefix, ample, true
	return w
}

// daily is a charge of one unit on a bucket that refills by too little to
// matter in a test.
func daily(subject string, n int64) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "p", Limit: gcra.PerDay(n), Cost: 1}
}

// spent is how many units of the charge's bucket are gone.
func spent(t testing.TB, s gcra.Store, c gcra.Charge) int64 {
	t.Helper()
	c.Cost = 0
	res, err := gcra.Take(t.Context(), s, c)
	if err != nil {
		t.Fatalf("looking at %s: %v", c.Subject, err)
	}
	return c.Limit.Count - res.Remaining
}

// take asks the store and counts the decision.
func (o *outcome) take(s gcra.Store, c gcra.Charge) (gcra.Result, error) {
	start := time.Now()
	res, err := gcra.Take(context.Background(), s, c)
	o.decided(time.Since(start))
	return res, err
}

// mustTake asks a store that has to answer.
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

// answers reports whether the store decides.
func answers(s gcra.Store) bool { return answersFor(s, "somebody") }

func answersFor(s gcra.Store, subject string) bool {
	_, err := gcra.Take(context.Background(), s, plenty(subject))
	return err == nil
}

// plenty is a charge that no test will see refused.
func plenty(subject string) gcra.Charge {
	return gcra.Charge{Subject: subject, Policy: "plenty", Limit: gcra.PerSecond(100_000), Cost: 1}
}

// recovers waits until the store answers and notes how long that took since
// the fault has ended. It fails when that is longer than within, a busy
// machine allowed for.
func (o *outcome) recovers(t testing.TB, s gcra.Store, within time.Duration) {
	t.Helper()
	o.recoversWhen(t, within, func() bool { return answers(s) })
}

func (o *outcome) recoversWhen(t testing.TB, within time.Duration, ok func() bool) {
	t.Helper()
	start := time.Now()
	redistest.Eventually(t, within+slack, "recovery", ok)
	o.recovery = max(o.recovery, time.Since(start))
}

// inTime fails when a decision took longer than its budget by what no busy
// machine explains.
func (o *outcome) inTime(t testing.TB, budget time.Duration) {
	t.Helper()
	if d := time.Duration(o.longest.Load()); d > budget+slack {
		t.Errorf("the longest decision took %v; want at most %v", d, budget)
	}
}

// atMost reports admissions beyond a bound.
func (o *outcome) atMost(t testing.TB, admitted, bound int64, what string) {
	t.Helper()
	if over := admitted - bound; over > 0 {
		o.over.Add(over)
		t.Errorf("%s: %d admitted; want at most %d", what, admitted, bound)
	}
}

// calls is how often a server has run a command since CONFIG RESETSTAT.
func calls(t testing.TB, server *redistest.Server, command string) (n int64) {
	t.Helper()
	return int64(stat(t, server, "commandstats", "cmdstat_"+command+":calls="))
}

// stat is the number that follows a text in a section of INFO, or 0.
func stat(t testing.TB, server *redistest.Server, section, text string) (n int) {
	t.Helper()
	for line := range strings.Lines(server.Client().Info(context.Background(), section).Val()) {
		if rest, ok := strings.CutPrefix(line, text); ok {
			if _, err := fmt.Sscanf(rest, "%d", &n); err != nil {
				t.Fatalf("INFO %s has %q: %v", section, line, err)
			}
		}
	}
	return n
}

func resetStats(t testing.TB, server *redistest.Server) {
	t.Helper()
	do(t, server, "config", "resetstat")
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

// holdings is what this process holds that must not grow in an outage.
type holdings struct{ goroutines, files int }

func held(t testing.TB) holdings {
	t.Helper()
	h := holdings{goroutines: runtime.NumGoroutine()}
	if entries, err := os.ReadDir("/proc/self/fd"); err == nil { // elsewhere only goroutines are counted
		h.files = len(entries)
	}
	return h
}

// released waits until no more is held than before, but for some.
func (before holdings) released(t testing.TB, some int) {
	t.Helper()
	redistest.Eventually(t, ample, fmt.Sprintf("goroutines and files to come back to %+v", before), func() bool {
		now := held(t)
		return now.goroutines <= before.goroutines+some && now.files <= before.files+some
	})
}

// site is a limited HTTP server with clients. The policy counts by the User
// header.
type site struct {
	*rig
	o        *outcome
	server   *httptest.Server
	client   *http.Client
	degraded atomic.Int64 // decisions that followed OnFailure

	mu   sync.Mutex
	took latencies // of all decisions
}

type startKey struct{}

func newSite(t testing.TB, o *outcome, r *rig, cfg ratelimit.Config, p ratelimit.Policy) *site {
	t.Helper()
	s := &site{rig: r, o: o}
	cfg.Store = r.Store
	cfg.Observe = func(req *http.Request, d ratelimit.Decision) {
		o.decided(time.Since(req.Context().Value(startKey{}).(time.Time)))
		if d.Err != nil {
			s.degraded.Add(1)
		}
		s.mu.Lock()
		defer s.mu.Unlock()
		s.took = append(s.took, d.Took)
	}
	p.Key = func(r *http.Request) (string, error) { return r.Header.Get("User"), nil }
	h := ratelimit.New(cfg, p)(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { w.WriteHeader(http.StatusOK) }))
	s.server = httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		h.ServeHTTP(w, r.WithContext(context.WithValue(r.Context(), startKey{}, time.Now())))
	}))
	transport := &http.Transport{MaxIdleConnsPerHost: 64}
	s.client = &http.Client{Transport: transport}
	t.Cleanup(func() {
		transport.CloseIdleConnections()
		s.server.Close()
	})
	return s
}

// get sends a request and returns the response, its body read.
func (s *site) get(t testing.TB, user string) *http.Response {
	t.Helper()
	req, err := http.NewRequest(http.MethodGet, s.server.URL, nil)
	if err != nil {
		t.Fatal(err)
	}
	req.Header.Set("User", user)
	resp, err := s.client.Do(req)
	if err != nil {
		t.Errorf("asking the server: %v", err)
		return &http.Response{Header: http.Header{}}
	}
	_ = resp.Body.Close()
	return resp
}

// codes counts answers by their status.
type codes map[int]int

// traffic sends requests of several users at a pace for a while.
func (s *site) traffic(t testing.TB, perSecond int, d time.Duration) codes {
	t.Helper()
	got := make(codes)
	var mu sync.Mutex
	var wg sync.WaitGroup
	gap := time.Second / time.Duration(perSecond)
	for i, start := 0, time.Now(); time.Since(start) < d; i++ {
		time.Sleep(time.Until(start.Add(time.Duration(i) * gap)))
		wg.Go(func() {
			resp := s.get(t, fmt.Sprint("user", i%10))
			mu.Lock()
			defer mu.Unlock()
			got[resp.StatusCode]++
		})
	}
	wg.Wait()
	return got
}

// only fails when an answer had another status than these.
func (c codes) only(t testing.TB, when string, allowed ...int) {
	t.Helper()
	for code, n := range c {
		if !slices.Contains(allowed, code) {
			t.Errorf("%s: %d answers with status %d; want only %v", when, n, code, allowed)
		}
	}
}

// crowd calls f from n goroutines at once, and returns when all are done.
func crowd(n int, f func(i int)) {
	var wg sync.WaitGroup
	barrier := make(chan struct{})
	for i := range n {
		wg.Go(func() {
			<-barrier
			f(i)
		})
	}
	close(barrier)
	wg.Wait()
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
