package redisstore

import (
	"cmp"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// On a cluster one script serves the keys of all slots of a node, if it says so and
// declares no keys (Redis 7.0 and newer, Valkey). The node checks the slot of each
// key when the script reads it. So a stale topology or a slot that moves does no
// harm: an admission with such a key is not decided, and sent again by the client, in
// a script for its subject. So are all admissions of a script that the node refuses.
var crossSlot = newScriptForm("#!lua flags=allow-cross-slot-keys\n", true)

// elsewhere is the reply of crossSlot for an admission that was not decided.
const elsewhere = -1 << 53

// errElsewhere is the error of a request that was not decided, until it is sent again.
var errElsewhere = errors.New("not decided on this node")

// crossesSlots reports whether the batch is a script for several slots.
func (b *batch) crossesSlots(client redis.UniversalClient) bool {
	_, cluster := client.(*redis.ClusterClient)
	return cluster && b.subjects
}

// collectUndecided collects the requests that a script for several slots has not
// decided: all, if the server has answered with an error. Nothing was written then,
// unless the user may write some keys of the prefix and not others.
func (b *batch) collectUndecided(s *script) {
	var answer redis.Error
	if errors.As(s.err, &answer) && !errors.Is(s.err, rediskit.ErrReply) {
		b.nodeErr, s.err = s.err, nil
		for _, q := range s.requests {
			q.err = errElsewhere
		}
	}
	for _, q := range s.requests {
		if q.err == errElsewhere {
			b.undecided = append(b.undecided, q)
		}
	}
}

// crossing is what a batcher knows about scripts for several slots.
type crossing struct {
	until  int64 // when to try again, after the server has answered one with an error
	paused bool  // none are sent after a batch that failed, until one with a script for each subject is answered
}

// crossingRetry is how long a server that does not run scripts for several slots gets
// none. It may be a proxy in the middle of a deployment, or run a newer version by then.
const crossingRetry = time.Minute

// slotMoves is in the error of Redis 7.4 if a script writes a key whose slot is moving.
const slotMoves = "attempted to access a non local key"

// oneScript reports whether the request may go in one script with those of other
// subjects. now is the time of the store's clock.
func (b *batcher) oneScript(q *request, now int64) bool {
	switch b.store.client.(type) {
	case *redis.ClusterClient:
		return q.node != nil && !q.byClient && !b.crossing.paused && now >= b.crossing.until
	case *redis.Ring:
		return q.node != nil
	}
	return b.store.only != nil
}

// noteCrossing learns from a batch. Its undecided requests go before those that wait.
func (b *batcher) noteCrossing(batch *batch, err error) {
	for _, q := range batch.undecided {
		q.err, q.byClient = nil, true
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	b.waiting = slices.Insert(b.waiting, 0, batch.undecided...)
	if err = cmp.Or(err, batch.nodeErr); err != nil || !batch.crossesSlots(b.store.client) {
		b.crossing.paused = err != nil
	}
	if e := batch.nodeErr; e != nil && (!rediskit.Down(e) || rediskit.Unknown(e)) && !strings.Contains(e.Error(), slotMoves) {
		b.crossing.until = b.store.clock.Now() + tat.Ticks(crossingRetry)
	}
}
