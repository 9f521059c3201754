package redisstore

import (
	_ "embed"
	"errors"
	"math/rand/v2"
	"slices"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
)

//go:embed report.lua
var reportLua string

var reportScript = send.NewScript(reportLua)

// A reporter charges in Redis what the local store has granted, see report.lua. While there is something to report one
// goroutine does so, in rounds.
type reporter struct {
	store    *Store
	grants   outage.Grants
	suffix   string        // of the markers of this store's reports
	answered chan struct{} // gets a value when Redis has answered a batch
	running  atomic.Bool   // loop runs
}

const (
	// reportPause is the least time between two rounds. What is beyond the clamp of a bucket is reported as it drains.
	reportPause = 25 * time.Millisecond

	// retryAfter is the time to the next round. A batch that Redis answers starts it earlier.
	retryAfter = 250 * time.Millisecond

	// maxRound is the most reports in a round. Those that are left out have a later turn.
	maxRound = 1 << 12

	// maxReports is the most reports in one call.
	maxReports = 128
)

func newReporter(s *Store) *reporter {
	return &reporter{store: s, suffix: "~reported." + strconv.FormatUint(rand.Uint64(), 36), answered: make(chan struct{}, 1)}
}

// start starts the loop unless it runs, or there is nothing to report.
func (r *reporter) start() {
	if r.grants.Any() && r.running.CompareAndSwap(false, true) {
		go r.loop()
	}
}

// wake starts a round early.
func (r *reporter) wake() {
	if !r.grants.Any() {
		return
	}
	select {
	case r.answered <- struct{}{}:
	default: // awake already
	}
}

// close gives up what is unreported, and ends the loop.
func (r *reporter) close() {
	// In this order: without grants wake does nothing, and the loop would wait out its pause.
	r.wake()
	r.grants.Close(r.store.clock.Now())
}

// loop does not ask the breaker: that keeps callers from waiting for a server that fails, and nobody waits here. So when
// some packets arrive, grants are reported while the breaker is still open.
func (r *reporter) loop() {
	closed := false
	for r.grants.Any() {
		select {
		case <-r.answered:
		case <-time.After(retryAfter):
		}
		err := r.round()

		// A server that has just left a ring is closed too. The next round does not go there.
		before := closed
		if closed = errors.Is(err, redis.ErrClosed); closed && before {
			r.close()
			continue
		}

		time.Sleep(reportPause)
	}

	r.running.Store(false)
	r.start() // if there is something since the last look
}

// round reports once, to all servers at the same time.
func (r *reporter) round() (err error) {
	targets := make(map[send.Target][]outage.Report)
	for _, report := range r.grants.Reports(r.store.clock.Now(), maxRound) {
		t := r.store.sender.Target(report.Key)
		targets[t] = append(targets[t], report)
	}

	// At once, so that a server that hangs delays no other.
	errs := make(chan error, len(targets))
	for t, list := range targets {
		go func() { errs <- r.to(t, list) }()
	}
	for range targets {
		err = errors.Join(err, <-errs)
	}
	return err
}

// to reports to one server: in one script, or in one for each subject where the server may need that.
func (r *reporter) to(t send.Target, list []outage.Report) error {
	for part := range slices.Chunk(list, maxReports) {
		byGroup := make(map[string][]outage.Report)
		for _, report := range part {
			group := t.Group(report.Key)
			byGroup[group] = append(byGroup[group], report)
		}

		var calls []send.Call
		// Before the call, as of an admission: Redis reads its clock later.
		sent := r.store.clock.Now()
		for _, reports := range byGroup {
			calls = append(calls, send.Call{Args: r.args(reports), Replies: 2 * len(reports), Learn: func(reply []int64) {
				for i := range reports {
					r.record(&reports[i], reply[2*i], reply[2*i+1], sent)
				}
			}})
		}

		if err := t.Run(reportScript, calls); err != nil {
			return err
		}
	}
	return nil
}

// args are the arguments of report.lua.
func (r *reporter) args(list []outage.Report) []any {
	args := []any{2 * len(list)}
	for i := range list {
		args = append(args, list[i].Key, list[i].Key+r.suffix)
	}
	for _, p := range list {
		args = append(args, p.ID, p.Amount, p.Top, p.Ends, p.Begins, p.Previous)
	}
	return args
}

// record records the reply to a report. sent is the time before the call.
func (r *reporter) record(report *outage.Report, charged, ahead, sent int64) {
	s := r.store
	// Impossible for good, so it is not repeated.
	if ahead < 0 {
		r.grants.Drop(report, sent)
		return
	}

	base := sent
	if report.Ends > 0 {
		base = s.clock.OnScale(report.Ends)
	}
	r.grants.Record(report, charged, base+ahead, s.clock.Now())
}
