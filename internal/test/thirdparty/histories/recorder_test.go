package histories

import (
	"context"
	"errors"
	"slices"
	"sync"
	"syscall"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore"
)

// tick is the unit of time of the algorithm.
const tick = 100 * time.Nanosecond

func ticks(d time.Duration) int64 { return int64(d / tick) }

// epoch is when ticks are counted from.
var epoch = time.Date(2025, 1, 1, 0, 0, 0, 0, time.UTC)

func ticksAt(t time.Time) int64 { return (t.UnixNano() - epoch.UnixNano()) / int64(tick) } // not t.Sub: this is the wall clock

func timeAt(t int64) time.Time { return epoch.Add(time.Duration(t) * tick) }

// A kind of operation.
type kind string

const (
	take   kind = "take"
	refund kind = "refund"
	settle kind = "settle" // what a settlement has returned; its calls of the store are operations too

	// What happened to the server.
	synced   kind = "synced"   // the replicas have all earlier writes
	rollback kind = "rollback" // a replica took over
	erased   kind = "erased"   // the server has forgotten everything
)

// An operation is a call of a store, or what happened to the server meanwhile.
type operation struct {
	Kind         kind
	Client       int
	Call, Return int64         // in ticks
	Charges      []gcra.Charge // of one subject, with their results
	Allowed      bool
	Lost         bool // an error: it may have happened, until the server is known to have dropped it

	Request int64 // the request of a middleware that made the call, or 0
	Cost    int64 // of a settlement
	Missing map[string]int64
}

// A recorder is a store that records all calls, and perhaps plants a fault.
type recorder struct {
	gcra.Store
	client int
	plant  *plant // nil for none

	mu  sync.Mutex
	ops []operation
}

func (r *recorder) add(o operation) {
	r.mu.Lock()
	defer r.mu.Unlock()
	o.Client = r.client
	r.ops = append(r.ops, o)
}

func (r *recorder) len() int {
	r.mu.Lock()
	defer r.mu.Unlock()
	return len(r.ops)
}

// requestKey is the key of a request's number in a context.
type requestKey struct{}

func (r *recorder) record(ctx context.Context, k kind, charges []gcra.Charge, f func() (bool, error)) (bool, error) {
	o := operation{Kind: k, Call: ticksAt(time.Now()) / 10 * 10} // Redis' clock has microseconds
	o.Request, _ = ctx.Value(requestKey{}).(int64)
	allowed, err := f()
	o.Return = ticksAt(time.Now())
	o.Charges, o.Allowed, o.Lost = slices.Clone(charges), allowed, err != nil
	if !notRun(err) {
		r.add(o)
	}
	return allowed, err
}

// notRun reports whether an error says that a call has not run: it was not sent, or the
// server has answered with an error, which comes before a script writes.
func notRun(err error) bool {
	var reply redis.Error
	return errors.Is(err, redisstore.ErrUnavailable) || errors.Is(err, syscall.ECONNREFUSED) || errors.As(err, &reply)
}

// Take implements [gcra.Store].
func (r *recorder) Take(ctx context.Context, charges []gcra.Charge) (bool, error) {
	return r.record(ctx, take, charges, func() (bool, error) {
		allowed, err := r.Store.Take(ctx, charges)
		r.plant.afterTake(r.Store, charges, allowed, err)
		return allowed, err
	})
}

// Refund implements [gcra.Store].
func (r *recorder) Refund(ctx context.Context, charges []gcra.Charge) error {
	if ctx.Value(requestKey{}) != nil && r.plant.due(forgotten, true) {
		return nil
	}
	_, err := r.record(ctx, refund, charges, func() (bool, error) {
		err := r.Store.Refund(ctx, charges)
		if err == nil {
			r.plant.afterRefund(r.Store, charges)
		}
		return err == nil, err
	})
	return err
}
