//go:build interleave

package buckets

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// The test here runs a few goroutines in every order of their synchronising
// operations with at most maxPreemptions preemptions, and compares the outcome
// with all sequential orders': charges are linearizable. (Musuvathi and
// Qadeer, PLDI 2007, on bounding preemptions; two found all of their bugs.)

// maxPreemptions is 3 where minutes do not matter.
var maxPreemptions = 2

func init() {
	if os.Getenv("RATELIMIT_LONG") != "" {
		maxPreemptions = 3
	}
}

// world is a set of few slots on a clock that the actions set. T is 10 ticks and
// B is 3.
type world struct {
	now int64
	set *Set
}

// The probe sequences of these keys begin at the same slot.
const a, b, c, d, e, f, g = 0x0a, 0x12, 0x1a, 0x22, 0x2a, 0x32, 0x3a

var keys = []uint64{a, b, c, d, e, f, g}

const other = 0x0d // its probe sequence begins elsewhere

func newWorld(capacity int) *world {
	w := &world{set: New(capacity, nil, false)}
	w.set.clock = &Clock{source: func() time.Time { yield(nil); return time.Unix(tat.Epoch, 0).Add(tat.Duration(w.now)) }}
	return w
}

// An action changes the world, perhaps by setting its clock, and says what it has
// seen.
type action struct {
	do   func(w *world) string
	sets bool
}

func params(inc int64) tat.Params {
	return tat.Params{Emission: 10, Capacity: 30, Top: 30, Room: 30, Inc: inc}
}

// takes charges the keys by units, negative for a refund, as gcra.Memory does.
func takes(units int64, keys ...uint64) action {
	return action{do: func(w *world) string {
		ops := make([]Op, len(keys))
		for i, key := range keys {
			ops[i] = Op{Charge: Charge{Params: params(10 * units), Hash: key}}
		}

		admitted := false
		if len(ops) == 1 && w.set.TakeFast(&ops[0].Charge) {
			admitted = ops[0].Admits(ops[0].Ahead)
		} else {
			admitted = w.set.Apply(ops)
		}

		seen := fmt.Sprint(admitted)
		for i := range ops {
			seen += fmt.Sprint(" ", ops[i].Ahead)
		}
		return seen
	}}
}

// clockAt sets the clock.
func clockAt(now int64) action {
	return action{func(w *world) string { w.now = now; return "" }, true}
}

// outcome is what all actions have seen, and what is left in the end.
func (w *world) outcome(seen [][]string) string {
	for _, key := range keys {
		seen = append(seen, []string{takes(0, key).do(w)})
	}
	return fmt.Sprint(seen)
}

type scenario struct {
	name     string
	capacity int
	setup    []action
	threads  [][]action
}

var scenarios = []scenario{
	{
		"the last units of a known key", 8,
		[]action{takes(1, a)},
		[][]action{{takes(1, a)}, {takes(1, a)}, {takes(1, a)}},
	},
	{
		"a charge and a refund", 8,
		[]action{takes(2, a)},
		[][]action{{takes(1, a)}, {takes(-1, a)}, {takes(2, a)}},
	},
	{
		"two keys at once beside each alone", 8,
		[]action{takes(2, a), takes(1, b)},
		[][]action{{takes(1, a, b)}, {takes(1, a)}, {takes(2, b)}},
	},
	{
		"a key that is new", 8,
		nil,
		[][]action{{takes(1, a)}, {takes(2, a)}, {takes(1, a)}},
	},
	{
		"a charge on a lapsed entry in a full table", 1,
		[]action{takes(1, a), clockAt(100)},
		[][]action{{takes(1, a)}, {takes(1, b), takes(1, a)}},
	},
	{
		"a table that grows", 8,
		[]action{takes(1, a), takes(1, b), takes(1, c), takes(1, d), takes(1, e), takes(1, f)},
		[][]action{{takes(1, a), takes(2, a)}, {takes(1, g)}},
	},
	{
		"a table that grows beside lapsed entries", 8,
		[]action{takes(1, a), takes(1, b), takes(1, c), takes(2, d), takes(2, e), takes(2, f), clockAt(keep + 15)},
		[][]action{{takes(1, a), takes(1, a)}, {takes(1, g), takes(1, b)}},
	},
	{
		// A denied admission leaves an entry without debt for the key that it
		// has added.
		"entries without debt", 8,
		[]action{takes(3, d), takes(1, a, d)},
		[][]action{{takes(1, a)}, {takes(1, b, d)}},
	},
	{
		"a clock that goes back", 8,
		[]action{clockAt(200), takes(1, a)},
		[][]action{{takes(1, a)}, {clockAt(90)}, {takes(1, a)}},
	},
	{
		// The entry of a becomes a tombstone. The other key is denied, so its entry has
		// no debt and makes room again. Then b's TAT becomes what a's was.
		"a clock that goes back in a full table", 1,
		[]action{clockAt(90), takes(1, a), clockAt(200)},
		[][]action{{takes(1, a)}, {takes(4, other), takes(1, b), clockAt(90), takes(-2, b)}},
	},
	{
		"a TAT that is now", 1,
		[]action{takes(1, a), clockAt(10)},
		[][]action{{takes(1, a)}, {takes(1, b), takes(-1, b)}},
	},
}

func TestInterleavings(t *testing.T) {
	for _, s := range scenarios {
		t.Run(strings.ReplaceAll(s.name, " ", "_"), func(t *testing.T) {
			setup := func() *world {
				w := newWorld(s.capacity)
				for _, act := range s.setup {
					act.do(w)
				}
				return w
			}

			want := s.sequential(setup)
			runs := 0
			explore(func(choose func(options int) int) {
				runs++
				w := setup()
				seen := make([][]string, len(s.threads))
				trace := run(len(s.threads), choose, func(thread int) {
					for _, act := range s.threads[thread] {
						seen[thread] = append(seen[thread], act.do(w))
					}
				})

				if got := w.outcome(seen); !want[got] {
					t.Fatalf("after %d runs, threads in order %v:\ngot  %s\nwant one of %v", runs, trace, got, slices.Sorted(maps.Keys(want)))
				}
			})

			t.Logf("%d interleavings, %d sequential outcomes", runs, len(want))
			if runs < 100 {
				t.Errorf("got %d interleavings; want more", runs)
			}
		})
	}
}

// sequential is the outcomes of all orders in which the threads can make their
// actions one after the other. Where the clock is set, it may be late: an action
// may have read either time.
func (s *scenario) sequential(setup func() *world) map[string]bool {
	times := []int64{setup().now}
	for _, thread := range s.threads {
		for _, act := range thread {
			w := &world{now: -1}
			if act.sets {
				act.do(w)
				times = append(times, w.now)
			}
		}
	}

	outcomes := make(map[string]bool)
	explore(func(choose func(options int) int) {
		w := setup()
		now := w.now
		seen := make([][]string, len(s.threads))
		for {
			var ready []int
			for i := range seen {
				if len(seen[i]) < len(s.threads[i]) {
					ready = append(ready, i)
				}
			}

			if len(ready) == 0 {
				break
			}
			i := ready[choose(len(ready))]
			act := s.threads[i][len(seen[i])]
			if !act.sets {
				w.now = times[choose(len(times))]
			}

			seen[i] = append(seen[i], act.do(w))
			if act.sets {
				now = w.now
			}
		}

		w.now = now
		outcomes[w.outcome(seen)] = true
	})
	return outcomes
}

// explore calls f with every sequence of choices that f can make.
func explore(f func(choose func(options int) int)) {
	type choice struct{ taken, options int }
	var made []choice
	for {
		n := 0
		f(func(options int) int {
			if n == len(made) {
				made = append(made, choice{0, options})
			}
			n++
			return made[n-1].taken
		})

		for len(made) > 0 && made[len(made)-1].taken == made[len(made)-1].options-1 {
			made = made[:len(made)-1]
		}
		if len(made) == 0 {
			return
		}
		made[len(made)-1].taken++
	}
}

// run runs n threads, one at a time. At each yield it chooses which goes on: the
// same, or while preemptions are left another.
func run(n int, choose func(options int) int, body func(thread int)) (trace []int) {
	type state struct {
		resume   chan struct{}
		waitsFor *mutex
		done     bool
	}

	threads := make([]*state, n)
	parked := make(chan struct{})
	current := -1
	yield = func(waitsFor *mutex) {
		t := threads[current]
		t.waitsFor = waitsFor
		parked <- struct{}{}
		<-t.resume
		t.waitsFor = nil
	}
	defer func() { yield = func(*mutex) {} }()

	for i := range threads {
		t := &state{resume: make(chan struct{})}
		threads[i] = t
		go func() {
			<-t.resume
			body(i)
			t.done = true
			parked <- struct{}{}
		}()
	}

	ready := func(i int) bool {
		t := threads[i]
		return !t.done && (t.waitsFor == nil || !t.waitsFor.held)
	}

	preemptions := 0
	for {
		var options []int
		free := current < 0 || !ready(current) // to choose another is no preemption
		if !free {
			options = append(options, current)
		}

		for i := range threads {
			if i != current && ready(i) && (free || preemptions < maxPreemptions) {
				options = append(options, i)
			}
		}

		if len(options) == 0 {
			for i := range threads {
				if !threads[i].done {
					panic(fmt.Sprint("deadlock after ", trace))
				}
			}
			return trace
		}

		next := options[choose(len(options))]
		if !free && next != current {
			preemptions++
		}
		if next != current {
			trace = append(trace, next)
		}

		current = next
		threads[current].resume <- struct{}{}
		<-parked
	}
}
