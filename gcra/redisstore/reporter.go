package redisstore

import (
	"errors"
	"math/rand/v2"
	"strconv"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/send"
)

// A reporter charges in Redis what the local store has granted, see report.lua. While there is something to report one
// goroutine does so, in rounds.
type reporter struct {
	store    *Store
	grants   outage.Grants
	suffix   string        // of the markers of this store's reports
	answered chan struct{} // gets a value when Redis has answered a batch

	mu      sync.Mutex
	running bool // loop runs
}

const (
	// reportPause is the least time between two rounds. What is beyond the clamp of a bucket is reported as it drains.
	reportPause = 25 * time.Millisecond

	// retryAfter is the time to the next round after one that failed, or had nothing to report yet. A batch that Redis
	// answers starts it earlier.
	retryAfter = 250 * time.Millisecond

	// maxRound is the most reports in a round. Those that are left out have a later turn.
	maxRound = 1 << 12
)

func newReporter(s *Store) *reporter {
	return &reporter{store: s, suffix: "~paid." + strconv.FormatUint(rand.Uint64(), 36), answered: make(chan struct{}, 1)}
}

// start starts the loop unless it runs, or there is nothing to report.
func (r *reporter) start() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if !r.running && r.grants.Any() {
		r.running = true
		go r.loop()
	}
}

// goesOn reports whether there is something to report. If not, it notes that the loop ends.
func (r *reporter) goesOn() bool {
	r.mu.Lock()
	defer r.mu.Unlock()
	r.running = r.grants.Any()
	return r.running
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
	r.wake()
	r.grants.Close(r.store.clock.Now())
}

// loop does not ask the breaker: that keeps callers from waiting for a server that fails, and nobody waits here. So when
// some packets arrive, grants are reported while the breaker is still open.
func (r *reporter) loop() {
	pause, closed := retryAfter, false
	for r.goesOn() {
		select {
		case <-r.answered:
		case <-time.After(pause):
		}
		tried, err := r.round()

		// A server that has just left a ring is closed too. The next round does not go there.
		before := closed
		if closed = errors.Is(err, redis.ErrClosed); closed && before {
			r.close()
			continue
		}

		time.Sleep(reportPause)
		if pause = retryAfter; tried && err == nil {
			pause = 0
		}
	}
}

// round reports once, to all servers at the same time. It says whether there was something to report.
func (r *reporter) round() (tried bool, err error) {
	targets := make(map[send.Target][]outage.Report)
	list := r.grants.Reports(r.store.clock.Now(), maxRound)
	for _, report := range list {
		t := r.store.sender.Target(report.Key)
		targets[t] = append(targets[t], report)
	}

	errs := make(chan error, len(targets))
	for t, list := range targets {
		go func() { errs <- r.to(t, list) }()
	}
	for range targets {
		err = errors.Join(err, <-errs)
	}
	return len(list) > 0, err
}
