package slidinglog

import (
	"cmp"
	"context"
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Store is a [gcra.Store] that keeps its logs in a Redis (6.2 or newer) shared by
// any number of processes. Decisions use the clock of Redis.
//
// A log is the list <Prefix>{<subject>}:<policy>, escaped and hashed like the keys
// of redisstore.Store. It expires when its window is empty.
//
// With a [redis.Client], also one for Sentinel, an admission is atomic: one script has the
// keys of all its subjects. Behind a proxy or a service that is several servers, limits may be
// looser without an error: there, give an admission one subject, and test that the proxy heeds
// hash tags.
//
// With other clients, an admission of one subject is atomic. One of several subjects is
// divided, and gives back what it took if another came in between: for a round trip, or longer
// if giving back fails, a subject may look more charged than it is. Keep no strict limit on a
// ring: it gives the keys of a shard that is down to the others, where their logs are empty.
//
// A charge is made at most once: if a reply is lost, it may have been made. If Redis does not
// answer within [Config].Timeout, Take returns an error. With FailLocal a policy of package
// middleware then decides by GCRA; use FailClosed for a strict limit.
type Store struct {
	client  redis.UniversalClient
	prefix  string
	timeout time.Duration
	single  bool // all keys are on one server
	inline  bool // the client returns by a context's deadline
}

// New returns a store on a [redis.Client] (also one for Sentinel), a
// [redis.ClusterClient] or a [redis.Ring]. The caller closes the client. The error has a
// line for each mistake.
func New(client redis.UniversalClient, cfg Config) (*Store, error) {
	err := errors.Join(rediskit.CheckClient("slidinglog", client), rediskit.CheckConfig("slidinglog", cfg.Prefix, cfg.Timeout))
	if cfg.Now != nil {
		err = errors.Join(err, errors.New("slidinglog: Now is set; want nil: the store of New has the time of Redis"))
	}
	if err != nil {
		return nil, err
	}

	s := &Store{
		client:  client,
		prefix:  cmp.Or(cfg.Prefix, "sl:"),
		timeout: cmp.Or(cfg.Timeout, rediskit.DefaultTimeout),
	}
	_, s.single = client.(*redis.Client)
	s.inline = rediskit.BoundsCalls(client, s.timeout)
	return s, nil
}

// Take implements [gcra.Store].
func (r *Store) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	if err := r.apply(ctx, charges, false); err != nil {
		return false, err
	}
	denied := func(c gcra.Charge) bool { return !c.Result.Allowed && !c.Shadow }
	return !slices.ContainsFunc(charges, denied), nil
}

// Refund implements [gcra.Store]. It removes the newest units.
func (r *Store) Refund(ctx context.Context, charges []gcra.Charge) error {
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

func (r *Store) apply(ctx context.Context, charges []gcra.Charge, refund bool) error {
	ps, err := paramsOf(ctx, charges, refund)
	if err != nil || len(charges) == 0 {
		return err
	}

	ops := make([]op, len(charges))
	for i, p := range ps {
		key := rediskit.AppendKey(make([]byte, 0, 64), r.prefix, charges[i].Subject, charges[i].Policy)
		ops[i] = op{params: p, key: string(key)}
	}

	if ctx.Done() == nil && r.inline {
		err = r.runHere(ctx, ops, refund)
	} else {
		err = r.runApart(ctx, ops, refund)
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
func (r *Store) runHere(ctx context.Context, ops []op, refund bool) error {
	ctx, cancel := context.WithTimeout(ctx, r.timeout)
	defer cancel()
	err := r.run(ctx, r.parts(ops), refund)
	if rediskit.IsTimeout(err) {
		return rediskit.NoAnswer(r.timeout)
	}
	return err
}

// runApart runs the scripts in another goroutine: a client may ignore the context while it waits for a
// reply. The call is not canceled with the caller, since a script that was sent charges anyway. Its
// deadline is later than the Timeout, so that a late reply is always the same error.
func (r *Store) runApart(ctx context.Context, ops []op, refund bool) error {
	wait, cancel := context.WithTimeoutCause(ctx, r.timeout, rediskit.NoAnswer(r.timeout))
	defer cancel()
	return await.Call(wait, func() error {
		ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*r.timeout)
		defer cancel()
		return r.run(ctx, r.parts(ops), refund)
	})
}

// callError is the error of a call without a decision.
type callError struct{ err error }

func (e *callError) Error() string {
	return "slidinglog: redis: " + rediskit.WithoutArgs(e.err.Error())
}
func (e *callError) Unwrap() error { return e.err }

// parts groups the ops by script: all on a single server, otherwise by subject.
func (r *Store) parts(ops []op) []*part {
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

func (r *Store) run(ctx context.Context, parts []*part, refund bool) error {
	switch {
	case refund:
		return each(parts, func(p *part) error { return r.refund(ctx, p, false) })
	case len(parts) == 1:
		return r.take(ctx, parts[0], take, anyDelay)
	default:
		return r.split(ctx, parts)
	}
}
