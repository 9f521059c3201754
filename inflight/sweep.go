package inflight

import (
	"maps"
	"math"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

const (
	shortLease = 10 * time.Second
	longLease  = time.Minute // of a key all of whose slots are older than that

	sweepEvery = time.Second
	perBatch   = 200
	batchPause = 12 * time.Millisecond
)

// lease is how long the key's next call asks for. Slots that it wants are new.
func (k *key) lease(now time.Time) time.Duration {
	if newest := k.holds.Back(); newest != nil && len(k.asked) == 0 && k.name != serversKey && now.Sub(newest.Value.(*hold).since) > longLease {
		return longLease
	}
	return shortLease
}

// sweep runs from the first key until Close.
func (l *Limiter) sweep() {
	var mark *hold
	for {
		if l.store != nil && mark == nil { // at first Redis may be away
			mark, _ = l.acquire(l.life, serversKey, 1, math.MaxInt32, patient, new(counts))
		}
		if await.Sleep(l.life, sweepEvery) != nil {
			return
		}
		for i := range l.shards {
			l.sweepShard(&l.shards[i])
		}
	}
}

// sweepShard ends the slots that are held too long, and sends the calls that are due, one for each key: one that fails is due
// again in the next sweep. They are spread, unless leases may end meanwhile: then no key waits for the server of another.
func (l *Limiter) sweepShard(s *shard) {
	s.mu.Lock()
	keys := slices.Collect(maps.Values(s.keys))
	s.mu.Unlock()

	for len(keys) > 0 && l.life.Err() == nil {
		calls, left, urgent := s.due(keys, time.Now())
		keys = left
		switch {
		case len(calls) == 0:
		case urgent:
			go l.write(calls)
		default:
			l.write(calls)
			if !l.closed.Load() {
				time.Sleep(batchPause)
			}
		}
	}
}

// due returns the calls of a batch that are due, and the keys that it has not looked at: a lease is renewed 3 s of 10 s after
// the last write. urgent says that one has not much longer to go.
func (s *shard) due(keys []*key, now time.Time) (calls []*call, left []*key, urgent bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, k := range keys {
		for at := k.holds.Front(); at != nil && k.name != serversKey; at = k.holds.Front() {
			h := at.Value.(*hold)
			if now.Sub(h.since) < s.limiter.cfg.MaxHold {
				break
			}
			h.end("a slot is held longer than MaxHold: it counts no longer")
		}

		age, renew := now.Sub(k.wrote), k.lasts*3/10
		switch {
		case s.limiter.store == nil:
			k.advance(now)
		case k.calling != 0 || now.Before(k.away):
			// Its answer, or the end of the pause, brings the next call.
		case k.held == k.confirmed && (k.held == 0 || age < renew):
			k.forget(now)
		default:
			// 7 s of 10 have passed: no time for pauses between batches.
			urgent = urgent || age > 2*renew+time.Second
			if calls = append(calls, k.call(now)); len(calls) == perBatch {
				return calls, keys[i+1:], urgent
			}
		}
	}
	return calls, nil, urgent
}

// end ends what is held and wanted in a shard whose Limiter is closed.
func (s *shard) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, k := range s.keys {
		for _, w := range slices.Concat(k.asked, k.waiting) {
			w.answer(nil, ErrClosed)
		}
		for at := k.holds.Front(); at != nil; at = k.holds.Front() {
			at.Value.(*hold).end("")
		}
		k.waiting, k.denied = nil, time.Time{}
		k.forget(time.Now())
	}
}

// reportFailure logs why Redis has not decided.
func (l *Limiter) reportFailure(err error) {
	if s, ok := l.store.(*redisStore); ok {
		conn, server := rediskit.ConnOf(s.client)
		conn.Answered = l.servers.Load() > 0
		if p := rediskit.Diagnose(err, conn); p.Code != "" { // a slow log does not hold up the key
			go l.log.Report(p.Code, server, "redis "+p.What, "server", server, "error", p.Cause, "hint", p.Hint)
		}
	}
}
