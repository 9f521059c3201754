package slidinglog

import (
	"context"
	"errors"
	"fmt"
	"net"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Redis is a [gcra.Store] that keeps its logs in a Redis (6.2 or newer) shared by
// any number of processes. Every decision uses the clock of that Redis and takes
// one script in one round trip.
//
// A log is the list <Prefix>{<subject>}:<policy>, escaped and hashed like the keys
// of redisstore.Store. It expires when its window is empty.
//
// On a single Redis, also behind Sentinel, every admission is atomic: one script has
// the keys of all its subjects. The store does not test whether one address is one
// server. Behind one that is several, give an admission one subject: with several, a
// service that hides a cluster answers CROSSSLOT, and a proxy that chooses the server
// by the first key makes limits looser without an error. A proxy that ignores hash
// tags does so for the policies of one subject, too.
//
// On a cluster or a ring, an admission of one subject is atomic. One of several
// subjects first evaluates all of them and then takes from all; if another admission came in
// between, it gives back what it took. For a round trip a subject may then look
// more charged than it is, never less.
//
// A script is sent once. If its reply is lost, the charge may have been made, but
// never twice. If Redis does not answer within Timeout, Take returns an error. A
// policy of package middleware with FailLocal then decides by GCRA, which is not
// strict; use FailClosed for a strict limit.
type Redis struct {
	// Prefix begins every key; "" means "sl:". It must not contain braces, which
	// would put all keys into one slot, and must differ from that of a redisstore.Store,
	// whose keys have another type. Set it before first use.
	Prefix string

	// Timeout bounds a call, independent of the client's settings; 0 means 50 ms, and
	// a negative one is an error. After it Take returns an error that wraps
	// [context.DeadlineExceeded]. Set it before first use.
	Timeout time.Duration

	client redis.UniversalClient
	single bool // all keys are on one server

	hint sync.Once // logs which settings of the client would save time
	log  diag.Log
}

// NewRedis returns a store on a [redis.Client] (also one for Sentinel), a
// [redis.ClusterClient] or a [redis.Ring]. The caller closes the client. Its
// retries do not apply to the scripts.
func NewRedis(client redis.UniversalClient) *Redis {
	_, single := client.(*redis.Client)
	return &Redis{client: client, single: single}
}

const (
	defaultPrefix  = "sl:"
	defaultTimeout = 50 * time.Millisecond
)

// Take implements [gcra.Store].
func (r *Redis) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	if err := r.apply(ctx, charges, false); err != nil {
		return false, err
	}
	denied := func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow }
	return !slices.ContainsFunc(charges, denied), nil
}

// Refund implements [gcra.Store]. It removes the newest units.
func (r *Redis) Refund(ctx context.Context, charges []gcra.Charge) error {
	return r.apply(ctx, charges, true)
}

// op is a charge as a script takes it, and the script's result. It is a copy of
// the charge, since the caller may return before the script does.
type op struct {
	params
	key    string
	result gcra.Result
	stop   int64 // of the log after this op, see log.lua
}

// part is the ops that one script takes, all or none: an admission, or what it
// takes from one subject.
type part struct {
	ops      []*op
	admitted bool
	delay    time.Duration // of the admission
	err      error
}

func (r *Redis) apply(ctx context.Context, charges []gcra.Charge, refund bool) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if len(charges) == 0 {
		return nil
	}
	prefix, err := r.prefix()
	if err != nil {
		return err
	}
	timeout := r.Timeout
	switch {
	case timeout < 0:
		return fmt.Errorf("slidinglog: redis: timeout is %v; want 0 (%v) or more", timeout, defaultTimeout)
	case timeout == 0:
		timeout = defaultTimeout
	}
	ps, err := paramsOf(charges, refund)
	if err != nil {
		return err
	}
	ops := make([]op, len(charges))
	for i, p := range ps {
		key := rediskit.AppendKey(make([]byte, 0, 64), prefix, charges[i].Subject, charges[i].Policy)
		ops[i] = op{params: p, key: string(key)}
	}

	r.hint.Do(func() {
		if line := rediskit.SettingsLine(&r.log, r.client, timeout); line != nil {
			line()
		}
	})
	if ctx.Done() == nil && rediskit.BoundsCalls(r.client, timeout) {
		err = r.runHere(ctx, ops, refund, timeout)
	} else {
		err = r.runApart(ctx, ops, refund, timeout)
	}
	if err != nil {
		return &callError{err}
	}
	for i := range ops {
		charges[i].Result = ops[i].result
	}
	return nil
}

// runHere runs the scripts in the goroutine of the caller, whose context never ends: the client returns
// by the deadline.
func (r *Redis) runHere(ctx context.Context, ops []op, refund bool, timeout time.Duration) error {
	ctx, cancel := context.WithTimeout(ctx, timeout)
	defer cancel()
	err := r.run(ctx, r.parts(ops), refund)
	var late net.Error
	if errors.Is(err, context.DeadlineExceeded) || errors.As(err, &late) && late.Timeout() {
		return noAnswer(timeout)
	}
	return err
}

// runApart runs the scripts in another goroutine: a client may ignore the context while it waits for a
// reply. The call is not canceled with the caller, since a script that was sent charges anyway. Its
// deadline is later than timeout, so that a late reply is always the same error.
func (r *Redis) runApart(ctx context.Context, ops []op, refund bool, timeout time.Duration) error {
	done := make(chan error, 1)
	go func() {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*timeout)
		defer cancel()
		done <- r.run(ctx, r.parts(ops), refund)
	}()
	select {
	case err := <-done:
		return err
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(timeout):
		return noAnswer(timeout)
	}
}

func noAnswer(timeout time.Duration) error {
	return fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded)
}

// callError is the error of a call without a decision.
type callError struct{ err error }

func (e *callError) Error() string {
	return "slidinglog: redis: " + rediskit.WithoutArgs(e.err.Error())
}
func (e *callError) Unwrap() error { return e.err }

func (r *Redis) prefix() (string, error) {
	switch {
	case r.Prefix == "":
		return defaultPrefix, nil
	case strings.ContainsAny(r.Prefix, "{}"):
		return "", fmt.Errorf("slidinglog: redis: prefix is %q; want one without braces", r.Prefix)
	}
	return r.Prefix, nil
}

// parts groups the ops by script: all on a single server, otherwise by subject.
func (r *Redis) parts(ops []op) []*part {
	var parts []*part
	byTag := make(map[string]*part)
	for i := range ops {
		hashTag := ""
		if !r.single {
			hashTag, _, _ = strings.Cut(ops[i].key, "}")
		}
		p := byTag[hashTag]
		if p == nil {
			p = new(part)
			byTag[hashTag] = p
			parts = append(parts, p)
		}
		p.ops = append(p.ops, &ops[i])
	}
	return parts
}

func (r *Redis) run(ctx context.Context, parts []*part, refund bool) error {
	switch {
	case refund:
		return each(parts, func(p *part) error { return r.refund(ctx, p, false) })
	case len(parts) == 1:
		return r.take(ctx, parts[0], take, anyDelay)
	default:
		return r.split(ctx, parts)
	}
}
