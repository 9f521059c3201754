package send

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed take.lua
var takeLua string

// ordinary is the form in which take.lua is sent to most servers.
var ordinary = NewScript(takeLua)

// A script is one call of take.lua, with the charges of any number of requests. take.lua describes the arguments and the
// reply.
type script struct {
	requests []*Request
	params   []tat.Params // each once; many ops share them
	periods  []tat.Period // of quotas, each once
	ops      []op         // one for each charge, in the order of the requests

	// The command, made by write.
	keys  map[string]int // key: its index in texts
	texts []string       // the keys, each once
	bytes []byte         // the ops, as they are sent
	args  []any
	form  *Script
	cmd   *redis.Cmd // once it is sent
}

// An op says what a charge is: params and periods by their index.
type op struct{ params, periods, flags byte }

const (
	flagLast   = 1
	flagShadow = 2
	flagQuota  = 4
)

// maxParams bounds the different params of a script, and the different periods. A request alone may have more.
const maxParams = 32

func newScript() script { return script{keys: make(map[string]int)} }

func (s *script) reset() {
	clear(s.requests)
	clear(s.keys)
	clear(s.texts)
	clear(s.args)
	*s = script{
		requests: s.requests[:0], params: s.params[:0], periods: s.periods[:0], ops: s.ops[:0],
		keys: s.keys, texts: s.texts[:0], bytes: s.bytes[:0], args: s.args[:0],
	}
}

// add adds a request, or reports false if its params or periods do not fit.
func (s *script) add(q *Request) bool {
	params, periods, ops := len(s.params), len(s.periods), len(s.ops)
	for i := range q.Charges {
		c := &q.Charges[i]
		op := op{params: byte(indexIn(&s.params, c.Params))}
		if c.Shadow {
			op.flags |= flagShadow
		}
		if i == len(q.Charges)-1 {
			op.flags |= flagLast
		}
		if c.Periods != nil {
			op.flags |= flagQuota
			op.periods = byte(indexIn(&s.periods, q.periods(c)))
		}
		s.ops = append(s.ops, op)
	}

	// Undone rather than counted before: most requests have params that are there.
	if len(s.requests) > 0 && (len(s.params) > maxParams || len(s.periods) > maxParams) {
		s.params, s.periods, s.ops = s.params[:params], s.periods[:periods], s.ops[:ops]
		return false
	}
	s.requests = append(s.requests, q)
	return true
}

// indexIn returns the index of v in the list, which it adds if it is new.
func indexIn[T comparable](list *[]T, v T) int {
	i := slices.Index(*list, v)
	if i < 0 {
		i = len(*list)
		*list = append(*list, v)
	}
	return i
}

// send sends the script and waits for the answer.
func (s *script) send(ctx context.Context, client redis.UniversalClient) {
	s.cmd = rediskit.WithText(ctx, client, rediskit.Send(ctx, client, s.args), s.form.text)
}

// write makes the command.
func (s *script) write(form *Script) {
	s.form = form
	short := s.writeOps()

	// On several slots the keys and their number are arguments, behind 0 keys that are declared.
	s.args = append(s.args[:0], "evalsha", form.sha)
	if form == severalSlots {
		s.args = append(s.args, 0)
	}
	s.args = append(s.args, len(s.texts))
	for i := range s.texts {
		s.args = append(s.args, &s.texts[i]) // a string would be copied to the heap
	}

	if short {
		p := &s.params[0]
		if s.args = append(s.args, p.Inc, p.Room); p.Top != p.Room {
			s.args = append(s.args, p.Top)
		}
		return
	}

	s.args = append(s.args, s.bytes)
	for _, p := range s.params {
		unit := int64(0)
		if p.Late {
			unit = p.Emission
		}
		s.args = append(s.args, p.Inc, p.Room, p.Top, unit)
	}
	// The script counts them from the end of ARGV, as it does not know how many params there are.
	for _, p := range slices.Backward(s.periods) {
		s.args = append(s.args, p.Before, p.Begin, p.End, p.Next)
	}
}

// writeOps writes the ops, 5 bytes each, and gathers the keys. It reports whether the short form of the arguments says as
// much.
func (s *script) writeOps() (short bool) {
	short = len(s.params) == 1 && s.params[0].Lowers()
	ops := s.ops
	for _, q := range s.requests {
		for i, key := range q.Keys {
			k, known := s.keys[key]
			if !known {
				k = len(s.texts)
				s.keys[key] = k
				s.texts = append(s.texts, key)
			}
			s.bytes = append(s.bytes, byte(k>>8), byte(k), ops[i].params, ops[i].periods, ops[i].flags)
			// The short form has one charge for each admission and key, no shadow and no quota.
			short = short && !known && ops[i].flags == flagLast
		}
		ops = ops[len(q.Keys):]
	}
	return short
}

// deliver sets what came of each request, and returns the time by the server's clock if there are quotas. noAnswer is not
// nil if no answer was received. The error is nil if the requests are to be sent again; refusal then says why.
func (s *script) deliver(w way, noAnswer error) (now int64, err, refusal error) {
	reply, err := s.reply(noAnswer)
	if err == nil {
		if len(s.periods) > 0 {
			now = reply[len(reply)-1]
		}
		for _, q := range s.requests {
			q.deliver(reply, now, s.form == severalSlots)
			reply = reply[len(q.Charges):]
		}
		return now, nil, nil
	}

	outcome := failed
	failure := &failure{err}
	// Redis answers so before it runs anything, and the keys will be together again.
	if redis.HasErrorPrefix(err, "TRYAGAIN") {
		outcome, err = notRun, nil
	} else if w.notRun(s, err) {
		outcome, err, refusal = notRun, nil, err
	}
	for _, q := range s.requests {
		q.outcome, q.Err = outcome, failure
	}
	return 0, err, refusal
}

// reply returns the numbers of the reply, or why there are none.
func (s *script) reply(noAnswer error) ([]int64, error) {
	if noAnswer != nil {
		return nil, asTimeout(noAnswer)
	}

	n := len(s.ops)
	if len(s.periods) > 0 {
		n++
	}
	reply, err := rediskit.Reply(s.cmd, n)
	return reply, asTimeout(err)
}

// asTimeout makes any error of a time-out one that wraps [context.DeadlineExceeded], as Config.Timeout says.
func asTimeout(err error) error {
	if rediskit.IsTimeout(err) && !errors.Is(err, context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", err, context.DeadlineExceeded)
	}
	return err
}
