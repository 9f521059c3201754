package faults

import (
	"cmp"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"text/tabwriter"
	"time"
)

// long is the form that make chaos runs: more load for more time, and a table.
var long = os.Getenv("RATELIMIT_CHAOS") == "long"

// row is one fault or attack.
type row struct {
	number int
	name   string // what good looks like, in a few words_with_underscores
	run    func(*testing.T, *outcome)
}

// outcome is what a row tells the table of the long form. Rows fill what makes
// sense for them.
type outcome struct {
	injected string        // what was done to the limiter
	requests atomic.Int64  // decisions asked for
	over     atomic.Int64  // admitted beyond the bound; more than 0 is a failure that the row reports
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

var rows = map[int]row{}

// suite is the test that all rows are part of; what they share lives as long.
var suite testing.TB

// fault registers a row. Call it in a var declaration beside the row's code:
//
//	var _ = fault(13, "script_flush_goes_unnoticed", func(t *testing.T, o *outcome) { ... })
func fault(number int, name string, run func(*testing.T, *outcome)) struct{} {
	if _, taken := rows[number]; taken {
		panic(fmt.Sprintf("fault %d is registered twice", number))
	}
	rows[number] = row{number, name, run}
	return struct{}{}
}

func TestFaults(t *testing.T) {
	suite = t
	t.Cleanup(func() { shared.cluster, shared.sentinel = nil, nil }) // with -count the next run starts its own
	sorted := slices.SortedFunc(maps.Values(rows), func(a, b row) int { return cmp.Compare(a.number, b.number) })
	var table strings.Builder
	w := tabwriter.NewWriter(&table, 0, 0, 2, ' ', 0)
	fmt.Fprintln(w, "row\tinjected\trequests\tover bound\tlongest\trecovery\t")
	for _, r := range sorted {
		o := new(outcome)
		verdict := "" // of a row that -run leaves out
		ok := t.Run(fmt.Sprintf("%02d_%s", r.number, r.name), func(t *testing.T) {
			verdict = "ok"
			defer func() {
				if t.Skipped() {
					verdict = "skipped"
				}
			}()
			r.run(t, o)
		})
		if verdict == "" {
			continue
		}
		if !ok {
			verdict = "FAILED"
		}
		fmt.Fprintf(w, "%02d %s\t%s\t%d\t%d\t%v\t%v\t%s\n", r.number, strings.ReplaceAll(r.name, "_", " "), o.injected,
			o.requests.Load(), o.over.Load(), time.Duration(o.longest.Load()).Round(time.Microsecond), o.recovery.Round(time.Millisecond), verdict)
	}
	if long {
		w.Flush()
		fmt.Print(table.String())
	}
}
