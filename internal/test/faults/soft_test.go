package faults

import (
	"fmt"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/sitetest"
	"github.com/seed-e377111c/ratelimit/internal/test/window"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Soft faults leave Redis working at times, or slowly. Each test opens a store by its
// URL, with the default settings, and four callers ask for one key far more often than
// its limit allows, before the fault, during it, and until Redis has answered again. In
// every window the limiter may allow one burst more than the bound: what a server grants
// alone while Redis does not answer, which it pays back. How long the fault lasts makes
// no difference. Alone it goes on from the last answer, as if Redis had read its clock
// before the call: what refills in the time of one call comes on top.

// softLimit is the limit of the key: the short form has many units in its short time.
func softLimit() gcra.Limit {
	return gcra.Limit{Count: 1, Per: phase(50*time.Millisecond, 200*time.Millisecond), Burst: 5}
}

// softTime is how long a soft fault lasts.
func softTime() time.Duration { return phase(700*time.Millisecond, 25*time.Second) }

// asker is a server with callers, without its HTTP.
type asker struct {
	o       *outcome
	store   *redisstore.Store
	limiter *middleware.Limiter
	log     *diagtest.Text
	start   time.Time

	mu       sync.Mutex
	calls    []window.Call
	answered time.Duration // the longest decision that Redis made
}

// newAsker limits by a store with its default settings, and reads its log.
func newAsker(o *outcome, open func(config) *redisstore.Store, instances int, limit gcra.Limit) *asker {
	a := &asker{o: o, log: new(diagtest.Text), start: time.Now()}
	a.store = open(config{Logger: a.log.Logger()})
	a.limiter = middleware.Must(middleware.New(middleware.Config{Store: a.store, Logger: silence, Instances: instances},
		middleware.Policy{Name: "p", Key: sitetest.Everybody, Limit: limit}))
	return a
}

func openAsker(t *testing.T, o *outcome, url string, instances int, limit gcra.Limit) *asker {
	t.Helper()
	return newAsker(o, func(cfg config) *redisstore.Store { return openStore(t, url, cfg) }, instances, limit)
}

// decide asks once.
func (a *asker) decide(r *http.Request) *middleware.Decision {
	begin := time.Since(a.start)
	d := a.limiter.Decide(r)
	end := time.Since(a.start)
	a.o.decided(end - begin)
	a.mu.Lock()
	defer a.mu.Unlock()
	if d.Allowed {
		a.calls = append(a.calls, window.Call{Begin: begin, End: end, Units: 1})
	}
	if d.Err == nil {
		a.answered = max(a.answered, end-begin)
	}
	return d
}

// asking has four callers ask until stop is called.
func (a *asker) asking(t *testing.T) (stop func()) {
	t.Helper()
	var stops []func()
	for range 4 {
		r, err := http.NewRequestWithContext(t.Context(), http.MethodGet, "/", nil)
		if err != nil {
			t.Fatal(err)
		}
		stops = append(stops, during(func() {
			a.decide(r)
			time.Sleep(4 * time.Millisecond)
		}))
	}

	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// under asks before a fault, while it lasts and until Redis has answered again, and
// checks all windows.
func (a *asker) under(t *testing.T, begin, end func()) {
	t.Helper()
	works(t, a.store)
	stop := a.asking(t)
	time.Sleep(phase(100*time.Millisecond, time.Second))
	begin()
	time.Sleep(softTime())
	end()
	a.o.recovers(t, a.store, probing)
	time.Sleep(phase(100*time.Millisecond, 5*time.Second))
	stop()
	a.o.inTime(t, 50*time.Millisecond)
	a.check(t)
}

// check fails if the calls of some window exceed the bound by more than they may.
func (a *asker) check(t *testing.T) {
	t.Helper()
	limit := softLimit()
	over, more := window.Excess(a.calls, limit), float64(burstOf(limit))+float64(a.answered)/float64(limit.Per)
	a.o.excess = fmt.Sprintf("%.1f of %.1f", max(over, 0), more)
	if over > more+tolerance {
		a.o.over.Add(int64(over - more))
		t.Errorf("%v allowed %.2f units more than the bound in some window; want at most %.2f", limit, over, more)
	}
	if int64(len(a.calls)) < burstOf(limit) {
		t.Errorf("only %d requests allowed", len(a.calls))
	}
}

// softly tests a fault of the link between the limiter and a server.
func softly(t *testing.T, injected string, begin func(*redistest.Proxy)) {
	o := apart(t, injected)
	proxy := redistest.NewProxy(t, redistest.Start(t).Addr)
	a := openAsker(t, o, "redis://"+proxy.Addr+"/0", 0, softLimit())
	a.under(t, func() { begin(proxy) }, proxy.Pass)
}
