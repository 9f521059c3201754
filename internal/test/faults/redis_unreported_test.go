package faults

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
	"github.com/seed-e377111c/ratelimit/internal/test/window"
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
		a := openAsker(t, o, "redis://"+link.Addr+"/0", servers, debtLimit)
		a.start = d.start
		works(t, a.store)
		d.servers = append(d.servers, a)
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

// check checks all windows of the calls.
func (d *debtors) check(t *testing.T, o *outcome, most float64) {
	t.Helper()
	over := window.Excess(d.calls(), debtLimit)
	o.excess = fmt.Sprintf("%+.1f of %+.1f", over, most)
	t.Logf("%s units more than the bound in the worst window", o.excess)
	if over > most+tolerance {
		o.over.Add(int64(over - most))
		t.Errorf("%.1f units more than the bound in some window; want at most %.1f", over, most)
	}
}

// balance compares what servers owe with what they may owe.
type balance struct {
	*debtors
	even  []time.Duration // when each server owed nothing last
	alone float64         // units: the most that the servers might owe together
}

func newBalance(d *debtors) *balance {
	return &balance{debtors: d, even: make([]time.Duration, len(d.servers))}
}

// watch takes samples.
func (b *balance) watch(t *testing.T, lasts time.Duration) {
	t.Helper()
	for end := time.Now().Add(lasts); time.Now().Before(end); time.Sleep(5 * time.Millisecond) {
		b.look(t)
	}
}

// isEven waits until what was allowed since the start is the bound and what has drained,
// while servers are asked for more: all else that was granted alone has been charged.
func (b *balance) isEven(t *testing.T, drained float64) {
	t.Helper()
	redistest.Eventually(t, ample, "all to be paid", func() bool { return b.excess() <= drained })
}

// look takes a sample. What a server owes is at most its share, which holds one unit,
// and an nth of the rate for as long as it has owed. What was allowed is at most the bound
// and what is owed.
func (b *balance) look(t *testing.T) {
	t.Helper()
	n, most, owed := float64(len(b.servers)), 0.0, 0.0
	paid := make([]int64, len(b.servers))
	for i, a := range b.servers { // paid first and granted last: no less than was owed meanwhile
		paid[i] = a.store.Stats().ReportedUnits
	}

	excess, now := b.excess(), time.Since(b.start)
	for i, a := range b.servers {
		owes := float64(a.store.Stats().LocalUnits - paid[i])
		if owes == 0 {
			b.even[i] = now
		}

		may := max(1, float64(debtLimit.Burst)/n) + float64(time.Since(b.start)-b.even[i])/n/float64(debtLimit.Per)
		if owes > may+1 { // a unit is counted as paid when half of it is
			t.Errorf("%v: server %d owes %.0f units and has owed for %v; want at most %.1f", now, i, owes, now-b.even[i], may)
		}
		owed, most = owed+owes, most+may
	}

	if excess > owed+n/2 { // see above
		t.Errorf("%v: %.1f units more than the bound; want at most the %.0f that are owed", now, excess, owed)
	}
	b.alone = max(b.alone, most)
}

// A link loses 30 % of what is sent to Redis. Each server grants alone while it waits, and
// charges it in Redis as soon as that answers. So however long this lasts, what passes is
// the bound and what servers owe at that moment: their shares, and what these give back
// while a server is cut off. When all is paid, nothing is left over.
func TestFault100LossyLink(t *testing.T) {
	beside(t)
	for _, servers := range []int{1, 3} {
		t.Run(fmt.Sprint(servers, " servers"), func(t *testing.T) {
			o := apart(t, fmt.Sprint("30 % of packets to Redis are lost, servers: ", servers))
			d := newDebtors(t, o, servers)
			b := newBalance(d)

			for _, link := range d.links {
				link.Lose(0.3, 0)
			}
			stop := d.asking(t)
			b.watch(t, phase(8*time.Second, 25*time.Second))
			for _, link := range d.links {
				link.Pass()
			}

			b.isEven(t, 0)
			stop()
			most := float64(debtLimit.Burst)
			if servers > 1 {
				most = max(most, b.alone)
			}
			d.check(t, o, most)
		})
	}
}

// cutOffOne has three servers asked, and cuts off the first after a second.
func cutOffOne(t *testing.T, o *outcome) (d *debtors, b *balance, stop func(), cut time.Time) {
	t.Helper()
	d = newDebtors(t, o, 3)
	b = newBalance(d)
	stop = d.asking(t)
	b.watch(t, time.Second)
	d.links[0].Blackhole()
	return d, b, stop, time.Now()
}

// One of three servers is cut off alone, for longer than it takes others to notice a
// failure. It grants its share beside the others, which Redis does not see. When it is
// back, that is charged, but for what has drained: after five seconds a third of the rate.
func TestFault111ServerCutOffAlone(t *testing.T) {
	o := apart(t, "one of three servers is cut off")
	d, b, stop, cut := cutOffOne(t, o)
	b.watch(t, phase(3*time.Second, 15*time.Second))
	d.links[0].Pass()
	redistest.Eventually(t, ample, "it to pay", func() bool { return d.servers[0].store.Stats().ReportedUnits > 0 })
	drains := max(time.Since(cut)-5*time.Second, 0)
	b.isEven(t, float64(drains)/3/float64(debtLimit.Per))
	stop()
	d.check(t, o, b.alone)
}

// One of three servers is cut off, and stops before it can charge what it has granted.
// That is not more than its share: one unit, and a third of the rate for as long as it
// was cut off.
func TestFault112ServerStopsWithDebts(t *testing.T) {
	o := apart(t, "one of three servers is cut off and stops")
	d, b, stop, cut := cutOffOne(t, o)
	b.watch(t, phase(2*time.Second, 10*time.Second))
	lost := d.servers[0].store.Stats()
	stop()
	cutOff := time.Since(cut)

	stopped := d.servers[0]
	d.servers, d.links = d.servers[1:], d.links[1:]
	stop = d.asking(t)
	time.Sleep(phase(500*time.Millisecond, 5*time.Second))
	stop()
	d.servers = append(d.servers, stopped)

	may := 1 + float64(cutOff)/3/float64(debtLimit.Per) + 1 // asking goes on until stop returns
	if owed := float64(lost.LocalUnits - lost.ReportedUnits); owed > may || owed < 1 {
		t.Errorf("it stopped with %.0f units that were not charged; want 1 to %.1f", owed, may)
	}
	d.check(t, o, may)
}
