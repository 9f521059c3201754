package test

import (
	"fmt"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"text/tabwriter"

	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/internal/test/parallel"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// long is the form that make outbound runs: longer windows, more processes, and exact assertions of times.
var long = os.Getenv("RATELIMIT_LONG") != ""

func TestMain(m *testing.M) {
	redistest.Child(callingProcess, callPartner)
	parallel.AtMost(64) // they sleep; those with narrow windows are not parallel to the others
	os.Exit(diagtest.Quiet(m).Run())
}

// A table prints its rows when the test and its subtests have ended.
type table struct {
	mu   sync.Mutex
	rows []string
}

// newTable returns a table with these columns. With -short it skips the test: all with a table take long.
func newTable(t *testing.T, columns ...string) *table {
	t.Helper()
	if testing.Short() {
		t.Skip("takes up to a minute")
	}
	tab := new(table)
	t.Cleanup(func() {
		var out strings.Builder
		w := tabwriter.NewWriter(&out, 0, 0, 2, ' ', 0)
		slices.Sort(tab.rows)
		fmt.Fprintln(w, strings.Join(columns, "\t"))
		fmt.Fprintln(w, strings.Join(tab.rows, "\n"))
		_ = w.Flush() // a Builder does not fail
		t.Logf("\n%s", out.String())
	})
	return tab
}

// add adds a row.
func (tab *table) add(cells ...any) {
	row := strings.TrimSuffix(strings.Repeat("%v\t", len(cells)), "\t")
	tab.mu.Lock()
	defer tab.mu.Unlock()
	tab.rows = append(tab.rows, fmt.Sprintf(row, cells...))
}
