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
// reply. The requests stand in the order of their ops, opSize bytes for each charge, which name key, params and periods by index.
type script struct {
	requests []*Request
	keys     map[string]int // key: its index among the keys
	texts    []string       // the keys
	args     []any          // of the command; the first four are set last
	params   []tat.Params   // each once; many ops share them
	periods  []tat.Period   // of quotas, each once
	ops      []byte         // one for each charge, in the order of the requests
	needsOps bool           // ops are sent; if not, take.lua takes its short cut
	form     *Script
	cmd      *redis.Cmd
	err      error // why there is no answer
}

// maxParams bounds the different params of a script, and the different periods. A request alone may have more.
const maxParams = 32

// An op, see take.lua.
const (
	opSize = 5

	flagLast   = 1
	flagShadow = 2
	flagQuota  = 4
)

func newScript() script { return script{keys: make(map[string]int)} }

func (s *script) reset() {
	clear(s.requests)
	clear(s.keys)
	clear(s.texts)
	clear(s.args)
	*s = script{
		requests: s.requests[:0], keys: s.keys, texts: s.texts[:0], args: s.args[:0], params: s.params[:0],
		periods: s.periods[:0], ops: s.ops[:0],
	}
}

// add adds a request, or reports false if its params or periods do not fit.
func (s *script) add(q *Request) bool {
	params, periods, ops := len(s.params), len(s.periods), len(s.ops)
	for i := range q.Charges {
		c, period, flags := &q.Charges[i], 0, byte(0)
		if c.Shadow {
			flags |= flagShadow
		}
		if i == len(q.Charges)-1 {
			flags |= flagLast
		}
		if c.Periods != nil {
			flags |= flagQuota
			period = indexIn(&s.periods, q.periods(c))
		}
		s.ops = append(s.ops, 0, 0, byte(indexIn(&s.params, c.Params)), byte(period), flags) // 0, 0: the key, below
	}

	if len(s.requests) > 0 && (len(s.params) > maxParams || len(s.periods) > maxParams) {
		s.params, s.periods, s.ops = s.params[:params], s.periods[:periods], s.ops[:ops]
		return false
	}

	if len(s.args) == 0 {
		s.args = append(s.args, nil, nil, nil, nil) // for evalsha to set
	}
	for i, key := range q.Keys {
		k, known := s.keys[key]
		if !known {
			k = len(s.keys)
			s.keys[key] = k
			s.texts = append(s.texts, key)
			s.args = append(s.args, &s.texts[k]) // a string would be copied to the heap
		}
		s.ops[ops+opSize*i], s.ops[ops+opSize*i+1] = byte(k>>8), byte(k)
		s.needsOps = s.needsOps || known
	}

	first := &q.Charges[0]
	s.needsOps = s.needsOps || len(q.Charges) > 1 || len(s.params) > 1 || first.Shadow || !first.Lowers() || len(s.periods) > 0
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
func (s *script) send(ctx context.Context, client redis.UniversalClient, form *Script) {
	s.cmd = rediskit.WithText(ctx, client, rediskit.Send(ctx, client, s.evalsha(form)), form.text)
}

// evalsha completes the arguments. Call it once.
func (s *script) evalsha(form *Script) []any {
	s.form = form
	if s.needsOps {
		s.args = append(s.args, s.ops)
		for _, p := range s.params {
			unit := int64(0)
			if p.Late {
				unit = p.Emission
			}
			s.args = append(s.args, p.Inc, p.Room, p.Top, unit)
		}
	} else {
		p := &s.params[0]
		if s.args = append(s.args, p.Inc, p.Room); p.Top != p.Room {
			s.args = append(s.args, p.Top)
		}
	}
	for _, p := range slices.Backward(s.periods) {
		s.args = append(s.args, p.Before, p.Begin, p.End, p.Next)
	}

	if form == severalSlots { // the keys and their number are arguments
		s.args[0], s.args[1], s.args[2], s.args[3] = "evalsha", form.sha, 0, len(s.keys)
		return s.args
	}
	s.args[1], s.args[2], s.args[3] = "evalsha", form.sha, len(s.keys)
	return s.args[1:]
}

// deliver sets the answer, or the error, of each request, and returns the time by the server's clock if there are quotas.
// noAnswer is not nil if no answer was received.
func (s *script) deliver(noAnswer error) (now int64) {
	var reply []int64
	if s.err = noAnswer; s.err == nil {
		n := len(s.ops) / opSize
		if len(s.periods) > 0 {
			n++
		}
		reply, s.err = rediskit.Reply(s.cmd, n)
	}

	if s.err != nil {
		if rediskit.IsTimeout(s.err) && !errors.Is(s.err, context.DeadlineExceeded) {
			s.err = fmt.Errorf("%w: %w", s.err, context.DeadlineExceeded) // as Config.Timeout says
		}
		err := &failure{s.err}
		for _, q := range s.requests {
			q.Err = err
		}
		return 0
	}

	if len(s.periods) > 0 {
		now = reply[len(reply)-1]
	}

	for _, q := range s.requests {
		if s.form == severalSlots && reply[0] == elsewhere {
			q.Err = errNotRun
		} else {
			q.deliver(reply, now)
		}
		reply = reply[len(q.Charges):]
	}
	return now
}
