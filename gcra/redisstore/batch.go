package redisstore

import (
	"context"
	"iter"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A batch is the requests that are sent to one server together: in one script, or in
// one for each subject.
type batch struct {
	scripts   []script // the first n are in use, the others keep their memory for later
	n         int
	oneScript bool
	subjects  bool           // the one script is for several subjects
	node      *redis.Client  // that it is sent to; nil on a single server
	byTag     map[string]int // hash tag: index of its script
	ops       int
	bytes     int // of keys

	undecided []*request // see crossslot.go
	nodeErr   error
	panicked  error // in a hook of the client

	timer callTimer // of the calls that its caller makes
}

// The bounds of a batch, so that it never holds Redis up for long. A larger request
// is sent alone.
const (
	maxOps   = 512
	maxBytes = 64 << 10
)

var batches = sync.Pool{New: func() any { return &batch{byTag: make(map[string]int)} }}

func (b *batch) reset() {
	for i := range b.scripts[:b.n] {
		b.scripts[i].reset()
	}
	clear(b.byTag)
	clear(b.undecided)
	*b = batch{scripts: b.scripts, byTag: b.byTag, undecided: b.undecided[:0], timer: b.timer}
}

// add adds a request, or reports false if it must wait for the next batch. With
// oneScript, hash tags do not matter.
func (b *batch) add(q *request, oneScript bool) bool {
	if b.n > 0 && b.oneScript != oneScript {
		return false
	}
	size := 0
	for i := range q.ops {
		size += len(q.ops[i].key)
	}
	if b.n > 0 && (b.ops+len(q.ops) > maxOps || b.bytes+size > maxBytes) {
		return false
	}
	tag, i, known := "", 0, b.n > 0
	if !oneScript {
		tag = hashTag(q.ops[0].key)
		i, known = b.byTag[tag]
	}
	if !known {
		i = b.n
		if i == len(b.scripts) {
			b.scripts = append(b.scripts, newScript())
		}
		if !oneScript {
			b.byTag[tag] = i
		}
		b.n++
	}
	s := &b.scripts[i]
	if !s.add(q) {
		return false
	}
	b.oneScript, b.node = oneScript, q.node
	b.subjects = b.subjects || oneScript && q.node != nil && hashTag(q.ops[0].key) != hashTag(s.texts[0])
	b.ops += len(q.ops)
	b.bytes += size
	return true
}

// size is the number of requests.
func (b *batch) size() (n int) {
	for i := range b.scripts[:b.n] {
		n += len(b.scripts[i].requests)
	}
	return n
}

func (b *batch) requests() iter.Seq[*request] {
	return func(yield func(*request) bool) {
		for i := range b.scripts[:b.n] {
			for _, q := range b.scripts[i].requests {
				if !yield(q) {
					return
				}
			}
		}
	}
}

// send sends the batch and waits for the answers: in one round trip, unless the
// server does not have the script or a slot moves.
func (b *batch) send(ctx context.Context, client redis.UniversalClient) {
	switch {
	case b.n > 1:
		b.pipeline(ctx, client)
	case b.node == nil || !b.subjects:
		b.scripts[0].send(ctx, client, ordinary)
	case b.crossesSlots(client):
		b.scripts[0].send(ctx, b.node, crossSlot)
	default:
		b.scripts[0].send(ctx, b.node, ordinary)
	}
}

// pipeline sends several scripts.
func (b *batch) pipeline(ctx context.Context, client redis.UniversalClient) {
	pipe := client.Pipeline()
	for i := range b.scripts[:b.n] {
		s := &b.scripts[i]
		_ = pipe.Process(ctx, s.queued(ctx, s.evalsha(ordinary))) // queues; the answer is the command's
	}
	_, _ = pipe.Exec(ctx)     // each command has its own error
	var again redis.Pipeliner // one connection for all: others might have to be dialled
	for i := range b.scripts[:b.n] {
		if s := &b.scripts[i]; redis.HasErrorPrefix(s.cmd.Err(), "NOSCRIPT") {
			if again == nil {
				again = client.Pipeline()
			}
			_ = again.Process(ctx, s.queued(ctx, s.eval()))
		}
	}
	if again != nil {
		_, _ = again.Exec(ctx)
	}
	var moving sync.WaitGroup
	for i := range b.scripts[:b.n] {
		if s := &b.scripts[i]; redis.HasErrorPrefix(s.cmd.Err(), "TRYAGAIN") {
			moving.Go(func() { s.sendAgain(ctx, client) })
		}
	}
	moving.Wait()
}

// deliver sets the answers of the requests. It returns an error of the scripts, if
// possible one that means an outage.
func (b *batch) deliver() (err error) {
	for i := range b.scripts[:b.n] {
		s := &b.scripts[i]
		s.deliver(b.panicked)
		if s.form == crossSlot {
			b.collectUndecided(s)
		}
		if err == nil || rediskit.Down(s.err) {
			err = s.err
		}
	}
	return err
}
