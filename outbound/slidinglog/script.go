package slidinglog

import (
	"context"
	_ "embed"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed log.lua
var logLua string

//go:embed take.lua
var takeLua string

//go:embed refund.lua
var refundLua string

// script is the text of a script and its SHA-1, by which Redis knows it.
type script struct{ text, sha string }

func newScript(text string) script { return script{text, redis.NewScript(text).Hash()} }

var (
	takeScript   = newScript(logLua + takeLua)
	refundScript = newScript(logLua + refundLua)
)

// call runs a script on the keys of a part and returns its reply of n numbers.
func (r *Store) call(ctx context.Context, s script, p *part, n int, argv ...any) ([]int64, error) {
	args := make([]any, 0, 3+len(p.ops)+len(argv))
	args = append(args, "evalsha", s.sha, len(p.ops))
	for _, o := range p.ops {
		args = append(args, o.key)
	}
	args = append(args, argv...)
	cmd := rediskit.SendAgain(ctx, r.client, rediskit.Send(ctx, r.client, args), s.text)
	return rediskit.Reply(cmd, n)
}

// Modes of take.lua.
const (
	take     = "take"
	evaluate = "evaluate"
)

// anyDelay lets take choose the delay of an admission, up to what its charges wait.
const anyDelay time.Duration = -1

// take runs take.lua on a part. Unless delay is anyDelay, it is the delay of the
// admission.
func (r *Store) take(ctx context.Context, p *part, mode string, delay time.Duration) error {
	const params, results = 6, 7 // of each op
	argv := append(make([]any, 0, 2+params*len(p.ops)), mode, micros(max(delay, 0)))
	for _, o := range p.ops {
		wait, kind := o.wait, 0
		if o.shadow {
			kind = 1
		} else if delay != anyDelay {
			wait = delay
		}
		if o.late {
			kind += 2
		}
		argv = append(argv, microsUp(o.per), o.count, o.cost, micros(wait), microsUp(o.maxDelay), kind)
	}

	reply, err := r.call(ctx, takeScript, p, 2+results*len(p.ops), argv...)
	if err != nil {
		return err
	}

	p.admitted, p.delay = reply[0] == 1, duration(reply[1])
	for i, o := range p.ops {
		a := reply[2+results*i:]
		o.result = gcra.Result{
			Allowed: a[0] == 1, Never: o.cost > o.count, Remaining: a[1],
			RetryAfter: duration(a[2]), ResetAfter: duration(a[3]), Delay: duration(a[4]), Taken: a[6],
		}
		o.stop = a[5]
	}
	return nil
}

// refund runs refund.lua on a part. taken says that its ops were taken by take, and
// that the units which they took are the ones to remove.
func (r *Store) refund(ctx context.Context, p *part, taken bool) error {
	const params, results = 4, 2 // of each op
	argv := make([]any, 0, params*len(p.ops))
	for _, o := range p.ops {
		cost, stop := o.cost, int64(0)
		if taken {
			cost, stop = o.result.Taken, o.stop
		}
		argv = append(argv, microsUp(o.per), o.count, cost, stop)
	}

	reply, err := r.call(ctx, refundScript, p, results*len(p.ops), argv...)
	if err != nil {
		return err
	}

	for i, o := range p.ops {
		o.result = gcra.Result{Allowed: true, Remaining: reply[results*i], ResetAfter: duration(reply[results*i+1])}
	}
	return nil
}

func micros(d time.Duration) int64   { return int64(d / time.Microsecond) }
func microsUp(d time.Duration) int64 { return micros(d + time.Microsecond - 1) }

func duration(micros int64) time.Duration { return time.Duration(micros) * time.Microsecond }
