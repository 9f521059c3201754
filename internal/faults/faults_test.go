package faults

import (
	"cmp"
	"fmt"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/redistest"
)

// long is the form that make chaos runs: more load for more time, and a table.
var long = os.Getenv("RATELIMIT_CHAOS") == "long"

func TestMain(m *testing.M) {
	redistest.Child(childURL, child)
	redistest.Child(limitedURL, limitedServer)
	code := m.Run()
	shared.stop()
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
	longest  atomic.Int64  // longest decision, in nanoseconds
	recovery time.Duration // from the end of the fault to the first answer of Redis
}

// decided counts a decision that took d.
func (o *outcome) decided(d time.Duration) {
	o.requests.Add(1)
	for {
		old := o.longest.Load()
		if int64(d) <= old || o.longest.CompareAndSwap(old, int64(d)) {
			return
		}
	}
}

var table []*outcome

// fault gives a test its row in the table. Call it first. Such tests are not
// parallel, and are called TestFault, a number of two digits, and what a user
// of the limiter notices.
func fault(t *testing.T, injected string) *outcome {
	o := &outcome{name: strings.TrimPrefix(t.Name(), "TestFault"), injected: injected}
	table = append(table, o)
	shared.TB = t
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
	slices.SortStableFunc(table, func(a, b *outcome) int { return cmp.Compare(a.name, b.name) })
	w := tabwriter.NewWriter(os.Stdout, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "fault\tinjected\trequests\tover bound\tlongest\trecovery\t")
	for _, o := range table {
		fmt.Fprintf(w, "%s\t%s\t%d\t%d\t%v\t%v\t%s\n", o.name, o.injected, o.requests.Load(), o.over.Load(),
			time.Duration(o.longest.Load()).Round(time.Microsecond), o.recovery.Round(time.Millisecond), o.verdict)
	}
	w.Flush()
}
