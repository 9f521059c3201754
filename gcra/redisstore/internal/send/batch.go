package send

import (
	"context"
	"iter"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A batch is the requests that are sent to one server together, in the same way.
//
//  1. The first n scripts are in use, the others keep their memory for later. byShare maps what the
//     keys of a script share to its index.
//  2. size, charges and bytes are sums over all requests in the scripts; takes is true if one of them takes.
//  3. All requests have been sent equally often: those that were sent before are closer to their deadlines than others, and the
//     earliest deadline ends the call for all.
//  4. A batch that is late is not used again: expire reads it, and so may the client, which still waits.
type batch struct {
	scripts []script
	n       int
	byShare map[string]int
	way     way
	client  redis.UniversalClient // of the server, or the one that finds it
	node    *redis.Client         // of the server, if it is one of several
	probe   *kind.Probe           // is sent too
	done    func(error)           // for the breaker to count the result

	sent     int64 // the time before the call
	deadline int64 // the first of the requests
	size     int   // requests
	charges  int
	bytes    int  // of keys
	takes    bool // a charge takes: it is no peek and no refund
	several  bool // byNode: the requests, of one subject each, are for several

	// The result.
	noAnswer error      // why the scripts have none: a panic in a hook of the client, or nothing was sent
	again    []*Request // are sent again at once
	refusal  error      // why a script has not run: the server does not take its keys together
	over     bool       // the call has ended in time, and the probe has its answers
	took     int64      // ticks
	err      error

	// What a call that is late needs.
	batcher *batcher
	timer   *time.Timer   // calls expire
	expired chan struct{} // closed then
	late    bool          // expire has answered the requests, and given away the place of the sender
}

// The bounds of a batch, so that it never holds Redis up for long. A request with more
// bytes is sent alone; its charges are at most maxCharges.
const (
	mostCharges = 512
	mostBytes   = 64 << 10
)

var batches sync.Pool

func getBatch() *batch {
	if b, ok := batches.Get().(*batch); ok {
		return b
	}
	b := &batch{byShare: make(map[string]int), expired: make(chan struct{})}
	// One timer for all calls of the batch. It runs from batcher.call on.
	b.timer = time.AfterFunc(time.Hour, b.expire)
	b.timer.Stop()
	return b
}

func (b *batch) reset() {
	for i := range b.scripts[:b.n] {
		b.scripts[i].reset()
	}
	// A batch in the pool keeps no request alive.
	clear(b.byShare)
	clear(b.again)
	*b = batch{scripts: b.scripts, byShare: b.byShare, again: b.again[:0], timer: b.timer, expired: b.expired}
}

// add adds a request, or reports false if it must wait for the next batch.
func (b *batch) add(q *Request, w way) bool {
	if b.n > 0 && (b.way != w || b.scripts[0].requests[0].sent != q.sent) {
		return false
	}

	bytes := 0
	for _, key := range q.Keys {
		bytes += len(key)
	}
	// The first always fits, or it would wait forever.
	if b.n > 0 && (b.charges+len(q.Charges) > mostCharges || b.bytes+bytes > mostBytes) {
		return false
	}

	share := w.shares(q.Keys[0])
	i, known := b.byShare[share]
	if !known {
		i = b.n
		// Beyond n there may be one of an earlier batch, with its memory.
		if i == len(b.scripts) {
			b.scripts = append(b.scripts, newScript())
		}
		b.byShare[share] = i
		b.n++
	}
	s := &b.scripts[i]
	// Only a script that has requests may be full, so a new one is never left empty.
	if !s.add(q) {
		return false
	}

	b.way, b.node = w, q.node
	if w == byNode {
		b.several = b.several || Tag(q.Keys[0]) != Tag(s.requests[0].Keys[0])
	}
	for i := range q.Charges {
		b.takes = b.takes || q.Charges[i].Takes()
	}

	if b.size == 0 || q.deadline < b.deadline {
		b.deadline = q.deadline
	}
	b.size++
	b.charges += len(q.Charges)
	b.bytes += bytes
	return true
}

func (b *batch) requests() iter.Seq[*Request] {
	return func(yield func(*Request) bool) {
		for i := range b.scripts[:b.n] {
			for _, q := range b.scripts[i].requests {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// write makes the commands, before the batch can expire: the callers of its requests may leave then, and nothing of these
// is read any more.
func (b *batch) write() {
	form := ordinary
	if b.several {
		form = severalSlots
	}
	for i := range b.scripts[:b.n] {
		b.scripts[i].write(form)
	}
}

// send makes the call.
func (b *batch) send(ctx context.Context) {
	b.noAnswer = rediskit.Call(func() error { return b.way.send(ctx, b) })
}

// deliver sets what came of the requests. It returns an error of the scripts, if possible one that means an outage. Scripts
// that are sent again count as without error.
func (b *batch) deliver() (err error) {
	for i := range b.scripts[:b.n] {
		now, scriptErr, refusal := b.scripts[i].deliver(b.way, b.noAnswer)
		if now != 0 {
			b.batcher.sender.Clock.Learn(now, b.sent)
		}
		if refusal != nil {
			b.refusal = refusal
		}
		if err == nil || rediskit.Down(scriptErr) {
			err = scriptErr
		}
	}

	b.over = true
	return err
}
