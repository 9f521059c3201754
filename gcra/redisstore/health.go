package redisstore

import (
	"cmp"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// health logs when a server fails and when it recovers. A problem that needs a change of the set-up, such as a wrong
// password, is logged at once. A failure that may be over with the next batch is logged when the
// breaker opens, when a server that has never answered refuses connections or
// commands, or when manyFailures batches have failed within [diag.Interval]. A
// timeout alone is not logged: a first connection may take longer than the
// Timeout.
type health struct {
	store  *Store
	server string

	answered atomic.Bool // once

	mu       sync.Mutex
	outage   bool        // no answer since the first call, or since the breaker opened
	problems []diag.Code // logged, and not over
	failures recent      // batches that failed
	outages  recent      // outages that ended
	wrong    time.Time   // of the last failure that needs a change of the set-up
	reason   string      // of the last failure, in a sentence
}

// manyFailures is how many failures within five minutes are worth a line when
// the breaker does not open.
const manyFailures = 10

// recent are the times of the last events, at most manyFailures.
type recent []time.Time

// add adds an event, and reports whether the last manyFailures events came within
// diag.Interval.
func (r *recent) add(now time.Time) bool {
	*r = append(*r, now)
	*r = (*r)[max(len(*r)-manyFailures, 0):]
	return len(*r) == manyFailures && now.Sub((*r)[0]) < diag.Interval
}

// health returns the health of a server.
func (s *Store) health(server string) *health {
	h, ok := s.healths.Load(server)
	if !ok {
		h, _ = s.healths.LoadOrStore(server, &health{store: s, server: server})
	}
	return h.(*health)
}

// note records the result of a call. open is the state of the breaker after it.
func (h *health) note(err error, open bool) {
	client, single := h.store.client.(*redis.Client)
	if single && rediskit.IsClosed(err) && !h.answered.Load() {
		// WhyClosed asks the server, and callers do not wait for that. By then the breaker may have another state.
		go func() { h.record(rediskit.WhyClosed(client, err), false) }()
		return
	}
	h.record(err, open)
}

func (h *health) record(err error, open bool) {
	h.mu.Lock()
	defer h.mu.Unlock()
	switch {
	case err != nil:
		h.fail(err, open)
	case !open:
		h.answer()
	}
}

// fail records a call that failed.
func (h *health) fail(err error, open bool) {
	conn, addresses := rediskit.ConnOf(h.store.client)
	conn.Answered = h.answered.Load()
	p := rediskit.Diagnose(err, conn)
	timeout := rediskit.IsTimeout(err)
	if timeout {
		// Often the batch has waited for a connection, and the dial has failed.
		p = rediskit.Diagnose(cmp.Or(h.store.dials.Failure(h.server), rediskit.NoAnswer(h.store.timeout)), conn)
	}

	h.reason = cmp.Or(p.String(), rediskit.WithoutArgs(err.Error()))
	h.outage = h.outage || open || !conn.Answered && rediskit.Down(err)
	if p.Code == "" {
		return
	}

	// A wrong set-up fails at once. A timeout may be a first connection that takes long.
	first := !conn.Answered && !timeout
	many := h.failures.add(time.Now())

	// While a set-up has never worked, and the log says why, its other failures follow from that.
	wrong := p.Code.Level() == slog.LevelError
	if wrong {
		h.wrong = time.Now()
	}
	explained := !conn.Answered && !h.wrong.IsZero() && time.Since(h.wrong) < diag.Interval
	if !wrong && (explained || !open && !first && !many) {
		return
	}

	args := []any{"server", cmp.Or(h.server, addresses), "error", p.Cause} // a cluster's nodes may not be known yet
	if p.Hint != "" {
		args = append(args, "hint", p.Hint)
	}
	if line := h.store.log.Line(p.Code, h.server, "redis "+p.What, args...); line != nil {
		go line() // callers do not wait for a slow log
		h.problems = append(h.problems, p.Code)
	}
}

// answer records a call that was answered.
func (h *health) answer() {
	h.answered.Store(true)
	if !h.outage {
		return // one answer does not end single failures
	}

	h.outage = false
	h.failures = nil // the next failures count from here
	if len(h.problems) == 0 {
		return // the outage was not logged
	}

	// A server that fails and recovers all the time has one line in five minutes.
	if !h.outages.add(time.Now()) {
		for _, code := range h.problems {
			h.store.log.Forget(code, h.server)
		}
	}
	h.problems = nil

	go cmp.Or(h.store.log.Logger, slog.Default()).Info("ratelimit: redis is available again", "server", h.server)
}

// lastReason says why the last batch failed that did.
func (h *health) lastReason() string {
	h.mu.Lock()
	defer h.mu.Unlock()
	return h.reason
}
