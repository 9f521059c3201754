package slidinglog

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Redis is a [gcra.Store] that keeps its logs in a Redis (6.2 or newer) which
// any number of processes share. Every decision is made on the clock of that
// Redis, by one script in one trip.
//
// A log is the sorted set <Prefix>{<subject>}:<policy>, escaped and hashed as
// the keys of redisstore.Store. It expires when its window is empty.
//
// On a single Redis (also behind Sentinel) an admission is atomic whatever its
// keys. On a cluster and on a ring, an admission of several subjects first asks
// all of them at once and then takes from all; where another admission came in
// between, what was taken is given back. For the time of a trip a subject may
// then look more charged than it is, never less. Admissions of one subject are
// atomic there, too.
//
// A script is sent once. When its reply is lost, whether it charged is not
// known: at most one charge was made, never several. When Redis does not answer
// within Timeout, Take returns an error and decides nothing. A policy of package
// middleware that then decides locally does so by GCRA, which is not strict: one
// that must be says FailClosed.
type Redis struct {
	// Prefix begins every key; "" means "sl:". Keep it apart from that of a
	// redisstore.Store, whose keys are of another type. Set it before first use,
	// without braces, which would put all keys into one slot.
	Prefix string

	// Timeout is the longest that a call takes, whatever the client's own
	// settings; 0 means 50 ms. After it Take returns an error that wraps
	// [context.DeadlineExceeded]. Set it before first use.
	Timeout time.Duration

	client redis.UniversalClient
	whole  bool // all keys live on one server
}

// NewRedis returns a store on a client of the caller's: a [redis.Client] (also
// one made for Sentinel), a [redis.ClusterClient] or a [redis.Ring]. The
// client's own retries do not apply to the scripts.
func NewRedis(client redis.UniversalClient) *Redis {
	_, whole := client.(*redis.Client)
	return &Redis{client: client, whole: whole}
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

// fare is a charge on its way to Redis, a copy: its caller may leave while it is
// under way.
type fare struct {
	demand
	key    string
	place  int // among the charges of its admission
	result gcra.Result
	number int64 // what the log has come to
}

// part is what one script takes, all or none: an admission, or what it takes
// from one subject.
type part struct {
	fares    []*fare
	admitted bool
	hold     time.Duration // how long the admission is held back
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
	if timeout <= 0 {
		timeout = defaultTimeout
	}
	ds, err := demands(charges, refund)
	if err != nil {
		return err
	}
	fares := make([]fare, len(charges))
	for i, d := range ds {
		key := rediskit.AppendKey(make([]byte, 0, 64), prefix, charges[i].Subject, charges[i].Policy)
		fares[i] = fare{demand: d, key: string(key), place: i}
	}

	// The client is left to itself when the time is up, or the caller's context
	// is done: what it sent is charged all the same. The deadline that it is
	// given is later than the caller's, who so hears of one kind of error only.
	done := make(chan error, 1)
	go func() {
		trips, cancel := context.WithTimeout(context.WithoutCancel(ctx), 2*timeout)
		defer cancel()
		done <- r.run(trips, r.parts(fares), refund)
	}()
	timer := time.NewTimer(timeout)
	defer timer.Stop()
	select {
	case err = <-done:
	case <-ctx.Done():
		err = ctx.Err()
	case <-timer.C:
		err = fmt.Errorf("no answer within %v: %w", timeout, context.DeadlineExceeded)
	}
	if err != nil {
		return &callError{err}
	}
	for i := range fares {
		charges[i].Result = fares[i].result
	}
	return nil
}

// callError is the error of a call that Redis did not answer with a decision.
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

// parts divides an admission into those that one script can take.
func (r *Redis) parts(fares []fare) []*part {
	var parts []*part
	at := make(map[string]*part)
	for i := range fares {
		home := ""
		if !r.whole {
			home, _, _ = strings.Cut(fares[i].key, "}")
		}
		p := at[home]
		if p == nil {
			p = new(part)
			at[home] = p
			parts = append(parts, p)
		}
		p.fares = append(p.fares, &fares[i])
	}
	return parts
}

func (r *Redis) run(ctx context.Context, parts []*part, refund bool) error {
	switch {
	case refund:
		return each(parts, func(p *part) error { return r.refund(ctx, p, false) })
	case len(parts) == 1:
		return r.take(ctx, parts[0], take, asLong)
	default:
		return r.split(ctx, parts)
	}
}

//go:embed log.lua
var logLua string

//go:embed take.lua
var takeLua string

//go:embed refund.lua
var refundLua string

// script is the text of a script and what Redis knows it by.
type script struct{ text, sha string }

func newScript(text string) script {
	sum := sha1.Sum([]byte(text))
	return script{text, hex.EncodeToString(sum[:])}
}

var (
	takeScript   = newScript(logLua + takeLua)
	refundScript = newScript(logLua + refundLua)
)

// call sends a script for the keys of a part and returns its reply of n numbers.
func (r *Redis) call(ctx context.Context, s script, p *part, n int, argv ...any) ([]int64, error) {
	args := make([]any, 0, 3+len(p.fares)+len(argv))
	args = append(args, "evalsha", s.sha, len(p.fares))
	for _, f := range p.fares {
		args = append(args, f.key)
	}
	args = append(args, argv...)
	cmd := rediskit.SendAgain(ctx, r.client, rediskit.Send(ctx, r.client, args), s.text)
	return rediskit.Reply(cmd, n)
}

// Modes of take.lua.
const (
	take = "take"
	ask  = "ask"
)

// asLong says that an admission is held back for as long as need be, within the
// patience of its charges.
const asLong time.Duration = -1

// take takes a part, or asks for it, to be held back for exactly as long as
// given.
func (r *Redis) take(ctx context.Context, p *part, mode string, hold time.Duration) error {
	const each, answers = 6, 6
	argv := append(make([]any, 0, 2+each*len(p.fares)), mode, micros(max(hold, 0)))
	for _, f := range p.fares {
		within, shadow := f.within, 0
		if f.shadow {
			shadow = 1
		} else if hold != asLong {
			within = hold
		}
		argv = append(argv, microsUp(f.per), f.count, f.cost, micros(within), microsUp(f.top), shadow)
	}
	reply, err := r.call(ctx, takeScript, p, 2+answers*len(p.fares), argv...)
	if err != nil {
		return err
	}
	p.admitted, p.hold = reply[0] == 1, duration(reply[1])
	for i, f := range p.fares {
		a := reply[2+answers*i:]
		f.result = gcra.Result{
			Allowed: a[0] == 1, Never: f.cost > f.count, Remaining: a[1],
			RetryAfter: duration(a[2]), ResetAfter: duration(a[3]), Delay: duration(a[4]),
		}
		f.number = a[5]
	}
	return nil
}

// refund gives a part back; known says that it was taken before, by take.
func (r *Redis) refund(ctx context.Context, p *part, known bool) error {
	const each, answers = 4, 2
	argv := make([]any, 0, each*len(p.fares))
	for _, f := range p.fares {
		mine := int64(0)
		if known {
			mine = f.number
		}
		argv = append(argv, microsUp(f.per), f.count, f.cost, mine)
	}
	reply, err := r.call(ctx, refundScript, p, answers*len(p.fares), argv...)
	if err != nil {
		return err
	}
	for i, f := range p.fares {
		f.result = gcra.Result{Allowed: true, Remaining: reply[answers*i], ResetAfter: duration(reply[answers*i+1])}
	}
	return nil
}

// each does something to all parts at once.
func each(parts []*part, do func(*part) error) error {
	if len(parts) == 1 {
		return do(parts[0])
	}
	errs := make(chan error, len(parts))
	for _, p := range parts {
		go func() {
			p.err = do(p)
			errs <- p.err
		}()
	}
	var err error
	for range parts {
		err = errors.Join(err, <-errs)
	}
	return err
}

func micros(d time.Duration) int64   { return int64(d / time.Microsecond) }
func microsUp(d time.Duration) int64 { return micros(d + time.Microsecond - 1) }

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
