package gcra

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"
)

// Redis is a [Store] in a Redis (6.2 or newer, or a server that speaks as it
// does) that any number of processes share. Every decision is made on the
// clock of that Redis, by one script in one trip; clocks of the processes do
// not matter.
//
// A bucket is the key <Prefix>{<subject>}:<policy>. It holds one integer and
// expires by itself once it is full. Subjects and policies are escaped, and
// hashed when longer than 64 bytes, so that no client can steer a slot, forge
// another key or fill memory with long ones.
//
// On a single Redis (also behind Sentinel) an admission is atomic whatever its
// keys. On a cluster and on a ring one script for each subject runs, in
// parallel; where one refuses, the others are refunded: for the time of a trip
// a subject may look more charged than it is, never less. Charges of one
// subject always share a slot, so that admissions of one subject stay atomic.
//
// A script is sent once. When its reply is lost, whether it charged is not
// known, and the error says so by being neither nil nor certain: at most one
// charge was made, never several. A Take whose context ends returns at once;
// what it sent is charged all the same.
type Redis struct {
	// Prefix begins every key; "" means "rl:". Set it before first use, without
	// braces, which would put all keys into one slot.
	Prefix string

	// Timeout is the longest that a call takes, whatever the client's own
	// settings; 0 means 50 ms. After it Take returns an error that wraps
	// [context.DeadlineExceeded]. Set it before first use.
	Timeout time.Duration

	client redis.UniversalClient
	whole  bool // all keys live on one server
	owned  bool // Close closes the client
}

// NewRedis returns a store on a client of the caller's: a [redis.Client] (also
// one made for Sentinel), a [redis.ClusterClient] or a [redis.Ring]. The
// client's own retries do not apply to the script. [Open] makes a client whose
// other settings fit, too.
func NewRedis(client redis.UniversalClient) *Redis {
	_, whole := client.(*redis.Client)
	return &Redis{client: client, whole: whole}
}

const (
	defaultPrefix  = "rl:"
	defaultTimeout = 50 * time.Millisecond
)

// Close releases what [Open] has opened. A client given to [NewRedis] stays
// open.
func (r *Redis) Close() error {
	if !r.owned {
		return nil
	}
	return r.client.Close()
}

// Take implements [Store].
func (r *Redis) Take(ctx context.Context, charges []Charge) error {
	return r.apply(ctx, charges, false)
}

// Refund implements [Store].
func (r *Redis) Refund(ctx context.Context, charges []Charge) error {
	return r.apply(ctx, charges, true)
}

func (r *Redis) apply(ctx context.Context, charges []Charge, refund bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(charges) == 0 {
		return nil
	}
	if strings.ContainsAny(r.Prefix, "{}") {
		return fmt.Errorf("gcra: redis: prefix is %q; want one without braces", r.Prefix)
	}
	demands := make([]demand, len(charges))
	for i := range charges {
		var err error
		if demands[i], err = charges[i].demand(refund); err != nil {
			return err
		}
	}

	// The trip goes on when the caller leaves, so it has copies and a time
	// limit of its own.
	t := &trip{store: r, charges: slices.Clone(charges), demands: demands}
	done := make(chan struct{})
	ctx, cancel := context.WithTimeout(ctx, r.timeout())
	defer cancel()
	go func() {
		defer close(done)
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), r.timeout())
		defer cancel()
		t.run(ctx)
	}()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("gcra: redis: no answer: %w", ctx.Err())
	}
	if t.err != nil {
		return t.err
	}
	for i := range charges {
		charges[i].Result = demands[i].result(t.ahead[i], t.admitted && demands[i].admits(t.ahead[i]))
	}
	return nil
}

func (r *Redis) prefix() string {
	if r.Prefix == "" {
		return defaultPrefix
	}
	return r.Prefix
}

func (r *Redis) timeout() time.Duration {
	if r.Timeout <= 0 {
		return defaultTimeout
	}
	return r.Timeout
}
