package main

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"
)

// check asks a limiter about one subject. It belongs to one goroutine.
type check func(subject string) (admitted bool, err error)

// pass makes a check that must be admitted, as of a limit that is never reached.
func (ch check) pass(subject string) error {
	admitted, err := ch(subject)
	if err == nil && !admitted {
		return errDenied
	}
	return err
}

var errDenied = fmt.Errorf("denied a check of a limit that is never reached")

// contestant is a limiter under measurement or, as a bound of what is possible,
// a plain command (see isCommand).
type contestant struct {
	name  string
	build builder
}

// builder makes a limiter, on a client of its own. The result makes a check for one
// goroutine, which may keep scratch space in it.
type builder func(deployment, limit) (func() check, error)

// inTurn is the order of contestants in this round: the other way round in every second, as
// the first may find a colder machine.
func inTurn(contestants []contestant) []contestant {
	if os.Getenv(reverseVar) == "" {
		return contestants
	}
	contestants = slices.Clone(contestants)
	slices.Reverse(contestants)
	return contestants
}

// shared is a contestant whose callers need no scratch space.
func shared(ch check) func() check { return func() check { return ch } }

// start builds the contestant with the limit, after one with the tight limit has shown
// that it keeps it.
func (c contestant) start(b *testing.B, d deployment, l limit) func() check {
	b.Helper()
	if !isCommand(c.name) {
		c.mustKeep(b, d, tight)
	}
	caller, err := c.build(d, l)
	if err != nil {
		b.Fatal(err)
	}
	return caller
}

// mustKeep fails the benchmark of a contestant that does not keep the limit of 20.
func (c contestant) mustKeep(b *testing.B, d deployment, l limit) {
	b.Helper()
	caller, err := c.build(d, l)
	if err == nil {
		err = keeps(caller(), fmt.Sprintf("tight:%s:%d", c.name, asserted.Add(1)))
	}
	if err != nil {
		b.Fatalf("%s: %v", c.name, err)
	}
}

var asserted atomic.Int64 // numbers fresh subjects

// keeps finds out whether a limiter keeps the tight limit: 20 or 21 of 100 pass. Without
// it a measurement would be worth nothing.
func keeps(ch check, subject string) error {
	const asked = 100
	passed := 0
	for range asked {
		ok, err := ch(subject)
		if err != nil {
			return err
		}
		if ok {
			passed++
		}
	}

	// Some count the unit that comes back meanwhile, or allow one on top.
	if most := int(tight.burst) + 1; passed < int(tight.burst) || passed > most {
		return fmt.Errorf("admitted %d of %d; want %d or %d", passed, asked, tight.burst, most)
	}
	return nil
}

// measure makes b.N checks by so many callers at once.
func measure(b *testing.B, caller func() check, callers int, list []string) {
	b.Helper()
	b.ResetTimer()
	err := ask(caller, callers, b.N, list)
	b.StopTimer()
	if err != nil {
		b.Fatal(err)
	}
}

// measureInMemory is [measure], and reports the CPU time of a single caller. That leaves out
// what other programs do, and garbage collection on other threads.
func measureInMemory(b *testing.B, caller func() check, callers int, list []string) {
	b.Helper()
	b.ReportAllocs()
	runtime.LockOSThread()
	defer runtime.UnlockOSThread()
	begin := threadCPU()
	measure(b, caller, callers, list)
	if callers == 1 {
		b.ReportMetric(float64((threadCPU()-begin).Nanoseconds())/float64(b.N), "caller-ns/op")
	}
}

// measureOn is [measure], and reports the CPU time that all servers used for a check.
func measureOn(b *testing.B, d deployment, caller func() check, callers int, list []string) {
	b.Helper()
	before := d.cpu(b)
	measure(b, caller, callers, list)
	d.reportCPU(b, before, b.N)
}

func (d deployment) reportCPU(b *testing.B, before time.Duration, checks int) {
	b.ReportMetric(float64((d.cpu(b)-before).Nanoseconds())/float64(checks), "redis-ns/op")
}

// touch asks about every subject once, so that no measurement meets a new one, or has to
// connect.
func touch(b *testing.B, caller func() check, callers int, list []string) {
	b.Helper()
	n := max(callers, len(list))
	if testing.Short() {
		n = callers
	}
	if err := ask(caller, callers, n, list); err != nil {
		b.Fatal(err)
	}
}

// ask makes n checks of the subjects in turn. Each caller takes the next one as soon as it
// has an answer. No limit is reached here, so a denial is an error.
func ask(caller func() check, callers, n int, list []string) error {
	// Callers in memory take many at a time, or they would wait for the counter.
	chunk := int64(max(1, min(n/callers/64, 1000)))
	var (
		next   atomic.Int64
		failed atomic.Value
		wg     sync.WaitGroup
	)
	work := func(ch check) {
		for failed.Load() == nil {
			end := next.Add(chunk)
			begin := end - chunk
			if begin >= int64(n) {
				return
			}

			at := int(begin % int64(len(list)))
			for range min(end, int64(n)) - begin {
				if err := ch.pass(list[at]); err != nil {
					failed.Store(fmt.Errorf("%s: %w", list[at], err)) // of one type always
					return
				}
				if at++; at == len(list) {
					at = 0
				}
			}
		}
	}

	for range callers - 1 {
		ch := caller()
		wg.Go(func() { work(ch) })
	}
	work(caller())
	wg.Wait()

	err, _ := failed.Load().(error)
	return err
}
