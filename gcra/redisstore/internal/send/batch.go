package send

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A batch is the requests that make one trip to a server together, in one run for each group of keys.
//
//  1. All of its requests have made equally many trips: those that have made more are closer to their deadlines, and the first
//     deadline ends the trip for all.
//  2. The runs are written before the trip. During the trip nothing is read or written of a request.
//  3. A batch that is late is not used again: expire reads it, and so may the client, which still waits.
type batch struct {
	requests []*Request
	kind     redisstats.Kind // how it is sent: the server's, or BySubject
	probe    *kind.Probe     // is sent too, if not nil
	sent     int64           // the time before the trip
	deadline int64           // the first of the requests
	charges  int

	script  *Script
	runs    []run
	byGroup map[string]int // group of keys: the index of its run
	keys    map[string]int // key: its index in its run

	// The result.
	took    int64 // ticks
	err     error // of the runs that failed, if possible one that means an outage
	refused bool  // the server does not take the keys of a run together

	// What ends the trip of one that is late.
	line    *line
	timer   *time.Timer   // calls expire
	expired chan struct{} // closed then
}

var batches sync.Pool

func newBatch() *batch {
	if b, ok := batches.Get().(*batch); ok {
		return b
	}
	b := &batch{byGroup: make(map[string]int), keys: make(map[string]int), expired: make(chan struct{})}
	b.timer = time.AfterFunc(time.Hour, b.expire) // one for all of its trips
	b.timer.Stop()
	return b
}

// free gives the batch's memory to another.
func (b *batch) free() {
	clear(b.byGroup)
	clear(b.keys)
	*b = batch{
		requests: b.requests[:0], runs: b.runs[:0], byGroup: b.byGroup, keys: b.keys,
		timer: b.timer, expired: b.expired,
	}
	batches.Put(b)
}

// add adds the next request that waits, or reports false if it must wait for the next batch.
func (b *batch) add(q *Request) bool {
	if len(b.requests) == 0 {
		b.deadline = q.deadline // none that waits and has made as many trips has an earlier one
	} else if q.trips != b.requests[0].trips || b.charges+len(q.Charges) > maxCharges {
		return false
	}

	b.requests = append(b.requests, q)
	b.charges += len(q.Charges)
	return true
}

// write makes the runs.
func (b *batch) write() {
	b.script = takeScript
	if b.kind == redisstats.ByNode {
		b.script = severalSlots
	}

	for _, q := range b.requests {
		group := groupOf(b.kind, q.Keys[0])
		i, known := b.byGroup[group]
		if !known {
			i = len(b.runs)
			b.byGroup[group] = i
			// Beyond its end there may be one of an earlier batch, with its memory.
			b.runs = slices.Grow(b.runs, 1)[:i+1]
			b.runs[i].reset()
		}
		b.runs[i].add(q, b.keys)
	}

	for i := range b.runs {
		b.runs[i].write(b.script)
	}
}

// send sends the runs and waits for the replies. An error means that there are none.
func (b *batch) send(ctx context.Context, client redis.UniversalClient) error {
	// Its buckets would exist on several servers, and requests with other policies would not see what was charged.
	if b.kind == redisstats.Unusable {
		b.script.send(ctx, client, nil, b.probe)
		return rediskit.ErrKeysApart
	}
	b.script.send(ctx, client, b.runs, b.probe)
	return nil
}

// setAnswers gives each request its answer, or the error in its place. noAnswer is not nil if there are no replies.
func (b *batch) setAnswers(noAnswer error) {
	for i := range b.runs {
		r := &b.runs[i]
		reply, err := r.reply(noAnswer)
		if err != nil {
			b.fail(r, err)
			continue
		}

		now := reply[len(reply)-1] // the server's, if the run has quotas
		if len(r.periods) > 0 {
			b.line.sender.Clock.Learn(now, b.sent)
		}
		for _, q := range r.requests {
			q.read(reply, now)
			reply = reply[len(q.Charges):]
		}
	}
}

// fail gives the requests of a run its error.
func (b *batch) fail(r *run, err error) {
	notRun := false
	switch {
	case redis.HasErrorPrefix(err, "TRYAGAIN"):
		notRun = true // Redis answers so before it runs anything, and the keys will be together again
	case refuses(b.kind, err):
		notRun, b.refused = true, true
	case b.err == nil || rediskit.Down(err):
		b.err = err
	}

	for _, q := range r.requests {
		q.Err, q.notRun = &failure{err}, notRun
	}
}

// reply returns the numbers of the reply, or why there are none.
func (r *run) reply(noAnswer error) (reply []int64, err error) {
	n := len(r.ops) / 5
	if len(r.periods) > 0 {
		n++
	}
	if err = noAnswer; err == nil {
		reply, err = rediskit.Reply(r.cmd, n)
	}
	// Any error of a time-out wraps [context.DeadlineExceeded], as Config.Timeout says.
	if rediskit.IsTimeout(err) && !errors.Is(err, context.DeadlineExceeded) {
		err = fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return reply, err
}

// refuses reports whether an error of a run for several subjects says that nothing has run, as the server does not take their
// keys together.
func refuses(k redisstats.Kind, err error) bool {
	switch k {
	case redisstats.OneKeyspace: // the server has become a cluster
		return redis.HasErrorPrefix(err, "CROSSSLOT")

	case redisstats.ByNode:
		// These errors prove that nothing was written: Redis refuses the script, or the script itself fails and does not say that
		// it has written. Any other error, such as a proxy's that has lost the node, may follow a charge.
		text := err.Error()
		harmless := !rediskit.Unknown(err) || strings.Contains(text, "user_script:") || strings.Contains(text, "in script shebang")
		return rediskit.IsReply(err) && harmless && !strings.Contains(text, "some keys are written")
	}
	return false
}
