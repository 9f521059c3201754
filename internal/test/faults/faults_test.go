package faults

import (
	"cmp"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// long is the form that make chaos runs: more load for more time, and a table.
var long = os.Getenv("RATELIMIT_CHAOS") == "long"

func TestMain(m *testing.M) {
	redistest.Child(limitedURL, limitedServer)
	redistest.Child(soakURL, soakServer)
	parallel.AtMost(12) // they wait, some of them for a cluster that they share
	code := m.Run()
	sharedCluster.stop()
	sharedSentinel.stop()
	if long {
		printTable()
	}
	os.Exit(code)
}

// outcome is what a test reports to the table of the long form. Tests fill what
// makes sense for them.
type outcome struct {
	name     string
	verdict  string
	injected string        // the fault
	requests atomic.Int64  // decisions asked for
	over     atomic.Int64  // allowed beyond the bound; more than 0 is a failure that the test reports
	excess   string        // of the worst window, where all windows are checked
	longest  atomic.Int64  // longest decision, in nanoseconds
	recovery time.Duration // from the end of the fault to the first answer of Redis

	mu   sync.Mutex
	took []time.Duration // of maxTook decisions at most, chosen at random
}

// maxTook is enough for the p99.9, and little beside the memory that tests measure.
const maxTook = 1 << 16

// decided counts a decision that took d.
func (o *outcome) decided(d time.Duration) {
	n := o.requests.Add(1)
	o.mu.Lock()
	if len(o.took) < maxTook {
		o.took = append(o.took, d)
	} else if i := rand.Int64N(n); i < maxTook {
		o.took[i] = d
	}
	o.mu.Unlock()
	for {
		old := o.longest.Load()
		if int64(d) <= old || o.longest.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

// table has the rows of the tests that ran, added under tableMu.
var (
	tableMu sync.Mutex
	table   []*outcome
)

// apart is [fault] for a test that changes and measures nothing of the process.
func apart(t *testing.T, injected string) *outcome {
	beside(t)
	return fault(t, injected)
}

// beside lets the test run beside others, in the short form.
func beside(t *testing.T) {
	if !long {
		t.Parallel()
	}
}

// fault gives a test its row in the table. Call it first. Such tests are called TestFault, a
// number of two or three digits, and what a user of the limiter notices.
func fault(t *testing.T, injected string) *outcome {
	o := &outcome{name: strings.TrimPrefix(t.Name(), "TestFault"), injected: injected}
	tableMu.Lock()
	table = append(table, o)
	tableMu.Unlock()
	t.Cleanup(func() {
		switch {
		case t.Failed():
			o.verdict = "FAILED"
		case t.Skipped():
			o.verdict = "skipped"
		default:
			o.verdict = "ok"
		}
	})
	return o
}

func printTable() {
	number := func(o *outcome) (n int) {
		_, _ = fmt.Sscanf(o.name, "%d", &n) // a name without one comes first
		return n
	}

	slices.SortStableFunc(table, func(a, b *outcome) int { return cmp.Compare(number(a), number(b)) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tinjected\trequests\tover bound\texcess\tp99.9\tlongest\trecovery\t")

	for _, o := range table {
		var tail time.Duration
		if slices.Sort(o.took); len(o.took) > 0 {
			tail = quantile(o.took, 0.999)
		}
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%s\t%v\t%v\t%v\t%s\n", o.name, o.injected, o.requests.Load(), o.over.Load(), o.excess,
			tail.Round(time.Microsecond), time.Duration(o.longest.Load()).Round(time.Microsecond), o.recovery.Round(time.Millisecond), o.verdict)
	}

	w.Flush()
}
