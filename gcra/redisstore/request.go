package redisstore

import (
	"context"
	"fmt"
	"strings"
	"sync"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// A request is an admission or a refund on its way to one server, which takes all
// of its ops or none. On a cluster it is for one subject. It has copies of
// the charges, so its caller may leave while it is in flight.
type request struct {
	ops      []op
	refund   bool
	node     *redis.Client // of several servers: that of the batcher, or nil if it is not known
	byClient bool          // the client finds the server, see crossslot.go
	deadline int64         // by the store's clock: the request is answered by then, if only with an error

	// The answer, to be read after a receive from done.
	admitted bool
	err      error
	done     chan struct{} // gets one value
}

// An op is one charge of a request. Its Ahead is the answer: how far the TAT was
// ahead of now when the op's turn came.
type op struct {
	buckets.Charge
	key     string
	latency int64 // of the call by which the denial cache learned the TAT
}

var requests = sync.Pool{New: func() any { return &request{done: make(chan struct{}, 1)} }}

// newRequest returns a request of copies of the ops.
func newRequest(ops []op, refund bool) *request {
	q := requests.Get().(*request)
	q.ops = append(q.ops[:0], ops...)
	q.refund, q.node, q.byClient, q.admitted, q.err = refund, nil, false, false, nil
	return q
}

// free gives the request to the next caller. Only a caller that has received from
// done may do so: until then its batcher holds it.
func (q *request) free() { requests.Put(q) }

func (q *request) finish() { q.done <- struct{}{} }

// fail answers a request with an error.
func (q *request) fail(err error) {
	q.err = &failure{err}
	q.finish()
}

// deliver sets the answer from the script's reply, which take.lua describes.
func (q *request) deliver(reply []int64) {
	q.admitted = reply[0] >= 0
	for i := range q.ops {
		q.ops[i].Ahead = reply[i]
		if !q.admitted {
			q.ops[i].Ahead = -reply[i] - 1
		}
	}
}

// taken reports whether an op of the request was taken.
func (q *request) taken(o *op) bool { return q.admitted && o.Admits(o.Ahead) }

// before returns the nearest earlier op on the same bucket as op i, or -1.
func before(ops []op, i int) int {
	for j := i - 1; j >= 0; j-- {
		if ops[j].Hash == ops[i].Hash {
			return j
		}
	}
	return -1
}

// setResults fills in the results of the charges, one for each op.
func setResults(charges []gcra.Charge, ops []op, admitted bool) {
	for i := range charges {
		ops[i].Result(admitted, (*tat.Result)(&charges[i].Result))
	}
}

// wait returns when the request is answered, or with an error when the caller's
// context ends first. The request goes on then.
func (q *request) wait(ctx context.Context) error {
	select {
	case <-q.done:
		return nil
	case <-ctx.Done():
		return fmt.Errorf("redisstore: %w", ctx.Err())
	}
}

// hashTag is a key up to the end of its hash tag: prefix and subject, which decide
// the slot on a cluster.
func hashTag(key string) string { return key[:strings.IndexByte(key, '}')] }
