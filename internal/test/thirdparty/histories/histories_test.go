package histories

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// long is the form that make long runs.
var long = os.Getenv("RATELIMIT_LONG") != ""

// amount is a size for the short form or the long.
func amount(short, full int) int {
	if long {
		return full
	}
	return short
}

// patience is how long a busy machine may take for what has to happen.
const patience = 30 * time.Second

// clientVar makes this test binary a process of a history.
const clientVar = "RATELIMIT_HISTORIES_CLIENT"

func TestMain(m *testing.M) {
	redistest.Child(clientVar, client)
	redistest.Child(historyURL, makeHistory)
	os.Exit(m.Run())
}

// A recording is what has been asked and done.
type recording struct {
	operations []operation
	faults     []string
	planted    int64
}

// play has all processes do a number of rounds.
func play(t testing.TB, s servers, rounds int, order round) (rec recording) {
	t.Helper()
	var all [processes]*redistest.Process
	for i := range all {
		all[i] = redistest.StartProcess(t, clientVar, "a client")
	}

	order.URL = s.url()
	_, happened := s.quiet()
	rec.operations = happened
	for n := range rounds {
		order.Round = int64(n)
		for i, p := range all {
			order.Client = i
			text, err := json.Marshal(&order)
			if err != nil {
				t.Fatal(err)
			}
			p.Write(string(text))
		}

		if fault := s.disturb(n); fault != "" {
			rec.faults = append(rec.faults, fault)
		}

		var operations []operation
		for _, p := range all {
			var done result
			if err := json.Unmarshal([]byte(p.Read()), &done); err != nil {
				t.Fatal(err)
			}
			operations = append(operations, done.Operations...)
			rec.planted += done.Planted
		}

		quiet, happened := s.quiet()
		for i := range operations {
			if o := &operations[i]; o.Lost && o.Kind != settle {
				o.Return = quiet // it may have happened until then
			}
		}

		rec.operations = slices.Concat(rec.operations, operations, happened)
	}

	for _, p := range all {
		p.End()
	}
	return rec
}

// TestHistories plays random histories and checks each by all means.
func TestHistories(t *testing.T) {
	redistest.Need(t)
	var mu sync.Mutex
	var histories, operations, lost, settlements, undecided int
	var checking time.Duration
	faults := map[string]int{}
	start := time.Now()
	t.Cleanup(func() {
		t.Logf("%d histories of %d operations, %d of them lost, and %d settlements, in %v; checked in %v; faults: %v", histories, operations, lost,
			settlements, time.Since(start).Round(time.Second), checking.Round(time.Millisecond), faults)
		if undecided > histories/2 {
			t.Errorf("Porcupine decided %d of %d histories in time; want at least half", histories-undecided, histories)
		}
	})

	n := amount(10, 200)
	for i := range n {
		t.Run(fmt.Sprint(i), func(t *testing.T) {
			t.Parallel()
			var s servers
			if i%10 == 0 {
				s = startCluster(t)
			} else {
				s = startSingle(t, i%2 == 0, allFaults...)
			}

			cached := i%3 == 2
			rec := play(t, s, 3, round{Calls: 40 + rand.IntN(60), Within: 3 * time.Second, Cached: cached})
			begin := time.Now()
			checked, decided := check(t, rec, cached)
			took := time.Since(begin)
			mu.Lock()
			defer mu.Unlock()
			histories++
			operations += len(rec.operations)
			settlements += checked
			if !decided {
				undecided++
			}
			checking += took

			unanswered := 0
			for _, o := range rec.operations {
				if o.Lost {
					unanswered++
				}
			}

			lost += unanswered
			if len(rec.operations)-unanswered < 50 {
				t.Errorf("%d operations, %d of them lost; want more that are answered", len(rec.operations), unanswered)
			}

			for _, fault := range rec.faults {
				faults[fault]++
			}
		})
	}
}

// check fails the test if a checker finds something, and keeps the history then: see
// go test -artifacts. Where a busy machine has lost many calls, there may be too many orders to decide.
func check(t *testing.T, rec recording, cached bool) (settlementsChecked int, decided bool) {
	t.Helper()
	defer func() {
		if !t.Failed() {
			return
		}
		text, err := json.Marshal(rec.operations)
		if err == nil {
			err = os.WriteFile(t.ArtifactDir()+"/history.json", text, 0o600)
		}
		t.Logf("faults %v; the history is in %s, %v", rec.faults, t.ArtifactDir(), err)
	}()

	text := unexplained(rec.operations, cached)
	if decided = !strings.Contains(text, unknown); !decided {
		t.Logf("the order of the calls: %s", text)
	} else if text != "" {
		t.Errorf("the order of the calls: %s", text)
	}

	for _, text := range windows(rec.operations) {
		t.Errorf("a window: %s", text)
	}
	n, wrong := settlements(rec.operations)
	for _, text := range wrong {
		t.Errorf("a settlement: %s", text)
	}
	return n, decided
}
