package test

import (
	"fmt"
	"testing"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/test/redistest"
)

// Several processes call a partner that allows one call a second. The partner counts the calls, while the
// callers lose patience, a process is killed, or Redis fails. In the short form a second is 100 ms. The clocks
// of the processes have no row: TestFault36ApplicationClockDoesNotMatter has them.
func TestTurns(t *testing.T) { // not beside the others, see TestMain
	second, processes := 100*time.Millisecond, 3
	if long {
		second, processes = time.Second, 6
	}
	const lasting = 40 // seconds
	tab := newTable(t, "scenario", "calls", "excess", "least gap", "longest gap", "callers served", "calls each", "denied", "store errors")
	const lost = 2 // calls more after a loss of state, see turns.Wait
	paused := func(w *world) {
		w.redis.Pause()
		time.Sleep(5 * second)
		w.redis.Resume()
	}
	for _, tt := range []struct {
		name    string
		callers int
		do      calling
		fault   func(w *world) // after 15 calls
		excess  int
	}{
		{name: "base", callers: 60},
		{name: "patience 15 s, few callers", callers: 12, do: calling{Patience: 15 * second}},
		{name: "patience 15 s, again after 0.2 s", callers: 60, do: calling{Patience: 15 * second, Again: second / 5}},
		{name: "patience 15 s, again after RetryAfter", callers: 60, do: calling{Patience: 15 * second}},
		{name: "deadline in 15 s, again after 0.2 s", callers: 60, do: calling{Patience: 15 * second, Deadline: true, Again: second / 5}},
		{name: "deadline in 15 s, again after RetryAfter", callers: 60, do: calling{Patience: 15 * second, Deadline: true}},
		{name: "one process killed", callers: 12, fault: func(w *world) {
			w.processes[0].Kill()
			w.processes = w.processes[1:]
		}},
		{name: "Redis restarted empty", callers: 60, excess: lost, fault: func(w *world) { w.redis.Restart() }},
		{name: "Redis killed for 5 s, back empty", callers: 60, excess: lost, fault: func(w *world) {
			w.redis.Kill()
			time.Sleep(5 * second)
			w.redis.Restart()
		}},
		{name: "Redis paused for 5 s", callers: 60, fault: paused},
		{name: "Redis paused for 5 s, default Timeout", callers: 60, do: calling{Timeout: 50 * time.Millisecond}, fault: paused},
	} {
		t.Run(tt.name, func(t *testing.T) {
			t.Parallel()
			w := &world{redis: redistest.Start(t), partner: startPartner(t)}
			c := tt.do
			c.Redis, c.Partner, c.Limits = w.redis.URL(), w.partner.URL, []gcra.Limit{{Count: 1, Per: second}}
			c.Callers = tt.callers / processes
			if c.Timeout == 0 {
				c.Timeout = 2 * time.Second
			}
			w.processes = startCallers(t, processes, c)
			begin := w.processes.call()
			end := time.After(lasting*second + second/2) // the last turn may be late
			if tt.fault != nil {
				redistest.Eventually(t, time.Minute, "15 calls", func() bool { return w.partner.calls() >= 15 })
				tt.fault(w)
			}
			<-end
			failed := w.processes.end(t)
			w.partner.Close()
			least, longest := w.partner.gaps()
			served, fewest, most := w.partner.perCaller()
			excess := w.partner.excess(begin, second)
			tab.add(tt.name, len(w.partner.at), excess, least.Round(100*time.Microsecond), longest.Round(100*time.Microsecond),
				fmt.Sprint(served, " of ", tt.callers), fmt.Sprint(fewest, "-", most), failed.Denied, failed.Store)
			if excess > tt.excess {
				t.Errorf("%d calls more than one each %v; want at most %d", excess, second, tt.excess)
			}
			if len(w.partner.at) < lasting/4 {
				t.Errorf("%d calls in %d turns; want at least a quarter", len(w.partner.at), lasting)
			}
			if tt.callers < 15 && served < tt.callers {
				t.Errorf("%d of %d callers were served; want all, as the queue is shorter than 15 turns", served, tt.callers)
			}
		})
	}
}

// world is what a fault of TestTurns has to do with.
type world struct {
	redis     *redistest.Server
	partner   *partner
	processes callers
}
