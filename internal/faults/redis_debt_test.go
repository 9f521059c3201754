package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
	"github.com/seed-e377111c/ratelimit/internal/redistest"
	"github.com/seed-e377111c/ratelimit/internal/sitetest"
	"github.com/seed-e377111c/ratelimit/internal/window"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// debtLimit is the limit of the one key in these tests.
var debtLimit = gcra.Limit{Count: 1, Per: 200 * time.Millisecond, Burst: 5}

// debtors are servers that share a key, each with callers and a link of its own to one
// Redis.
type debtors struct {
	servers []*asker
	links   []*redistest.Proxy
	start   time.Time
}

func newDebtors(t *testing.T, o *outcome, servers int) *debtors {
	redis := redistest.Start(t)
	d := &debtors{start: time.Now()}
	for range servers {
		link := redistest.NewProxy(t, redis.Addr)
		store, err := redisstore.Open("redis://" + link.Addr + "/0")
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() {
			if err := store.Close(); err != nil {
				t.Errorf("closing a store: %v", err)
			}
		})
		store.Logger = silence
		l := middleware.Must(middleware.New(middleware.Config{Store: store, Instances: servers, Logger: silence},
			middleware.Policy{Name: "client", Key: sitetest.Everybody, Limit: debtLimit}))
		works(t, store)
		d.servers = append(d.servers, &asker{o: o, store: store, limiter: l, start: d.start})
		d.links = append(d.links, link)
	}
	return d
}

// asking has four callers of each server ask until stop is called.
func (d *debtors) asking(t *testing.T) (stop func()) {
	var stops []func()
	for _, a := range d.servers {
		stops = append(stops, a.asking(t))
	}
	return func() {
		for _, stop := range stops {
			stop()
		}
	}
}

// calls are the requests that were allowed.
func (d *debtors) calls() (all []window.Call) {
	for _, a := range d.servers {
		a.mu.Lock()
		all = append(all, a.calls...)
		a.mu.Unlock()
	}
	return all
}

// units is how many units were allowed.
func (d *debtors) units() (n int) {
	for _, a := range d.servers {
		a.mu.Lock()
		n += len(a.calls)
		a.mu.Unlock()
	}
	return n
}

// excess is how many units more than the bound were allowed since the start.
func (d *debtors) excess() float64 {
	n := float64(d.units())
	return n - float64(debtLimit.Burst) - float64(time.Since(d.start))/float64(debtLimit.Per)
}

// balance compares, as long as servers owe, what they owe with what they may.
type balance struct {
	*debtors
	even  []time.Duration // when each server owed nothing
	alone float64         // units: the most that all servers owed at the same time, as far as the time explains it
	worst float64         // excess
}

// look takes a sample. What a server owes is at most its share, which holds one unit,
// and an nth of the rate for as long as it has owed. What was allowed is at most the bound
// and what is owed.
func (l *balance) look(t *testing.T) {
	t.Helper()
	n, most, owed := float64(len(l.servers)), 0.0, 0.0
	paid := make([]int64, len(l.servers))
	for i, a := range l.servers { // paid first and granted last: no less than was owed meanwhile
		paid[i] = a.store.Stats().PaidUnits
	}
	excess, now := l.excess(), time.Since(l.start)
	for i, a := range l.servers {
		owes := float64(a.store.Stats().LocalUnits - paid[i])
		if owes == 0 {
			l.even[i] = now
		}
		may := max(1, float64(debtLimit.Burst)/n) + float64(time.Since(l.start)-l.even[i])/n/float64(debtLimit.Per)
		if owes > may+1 { // a unit is counted as paid when half of it is
			t.Errorf("%v: server %d owes %.0f units and has owed for %v; want at most %.1f", now, i, owes, now-l.even[i], may)
		}
		owed, most = owed+owes, most+may
	}
	if excess > owed+n/2 {
		t.Errorf("%v: %.1f units more than the bound; want at most the %.0f that are owed", now, excess, owed)
	}
	l.worst, l.alone = max(l.worst, excess), max(l.alone, most)
}

// A link loses 30 % of what is sent to Redis. Each server grants alone while it waits, and
// charges it in Redis as soon as that answers. So however long this lasts, what passes is
// the bound and what servers owe at that moment: their shares, and what these give back
// while a server is cut off. When all is paid, nothing is left over.
func TestFault100LossyLink(t *testing.T) {
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers, " servers"), func(t *testing.T) {
			o := fault(t, fmt.Sprint("30 % of packets to Redis are lost, servers: ", servers))
			d := newDebtors(t, o, servers)
			l := &balance{debtors: d, even: make([]time.Duration, servers)}
			for _, link := range d.links {
				link.Lose(0.3, 0)
			}
			stop := d.asking(t)
			for end := time.Now().Add(phase(8*time.Second, 25*time.Second)); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
				l.look(t)
			}
			for _, link := range d.links {
				link.Pass()
			}
			redistest.Eventually(t, ample, "all to be paid", func() bool { return d.excess() <= 0 })
			stop()
			over := window.Excess(d.calls(), debtLimit)
			o.excess = fmt.Sprintf("%+.1f", over)
			t.Logf("worst excess since the start %+.1f, in any window %+.1f", l.worst, over)
			burst := float64(debtLimit.Burst)
			if most := burst + max(l.alone-burst, 0)*float64(min(servers-1, 1)); over > most+tolerance {
				t.Errorf("%.1f units more than the bound in some window; want at most %.1f", over, most)
			}
		})
	}
}
