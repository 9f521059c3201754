package send

import (
	"context"
	_ "embed"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/kind"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A Script is the text of a script, and the name that a server gives it.
type Script struct{ text, sha string }

// NewScript returns a script of this text.
func NewScript(text string) *Script { return &Script{text, redis.NewScript(text).Hash()} }

// send sends runs together, and a probe with them if there is one. If the server lacks the script, it is sent again with the text:
// the server has restarted, was flushed, or has only just become the owner of the keys.
func (s *Script) send(ctx context.Context, client redis.UniversalClient, runs []run, probe *kind.Probe) {
	if len(runs) == 1 && probe == nil {
		runs[0].cmd = rediskit.WithText(ctx, client, rediskit.Send(ctx, client, runs[0].args), s.text)
		return
	}
	s.pipeline(ctx, client, runs, probe)
}

// pipeline is a function of its own, as with its frame the stack of each new carrier would grow beyond 4 KB.
func (s *Script) pipeline(ctx context.Context, client redis.UniversalClient, runs []run, probe *kind.Probe) {
	pipe := client.Pipeline()
	for i := range runs {
		runs[i].cmd = rediskit.Queue(ctx, pipe, runs[i].args)
	}
	// In the same pipeline, so the probe costs no round trip.
	if probe != nil {
		probe.Queue(ctx, pipe)
	}
	rediskit.Exec(ctx, pipe)

	withText := client.Pipeline() // one connection for all: others might have to be dialled
	for i := range runs {
		if redis.HasErrorPrefix(runs[i].cmd.Err(), "NOSCRIPT") {
			runs[i].cmd = rediskit.Queue(ctx, withText, slices.Concat([]any{"eval", s.text}, runs[i].args[2:]))
		}
	}
	rediskit.Exec(ctx, withText)
}

//go:embed take.lua
var takeLua string

var (
	// takeScript is take.lua as most servers get it.
	takeScript = NewScript(takeLua)

	// severalSlots is take.lua that gets its keys as arguments: a node of a cluster runs it for keys in any of its slots
	// (Redis 7.0 and newer, Valkey). The node checks the slot of each key when the script reads it. So a stale topology or a
	// slot that moves does no harm: an admission with such a key is not decided.
	severalSlots = NewScript("#!lua flags=allow-cross-slot-keys\n" + takeLua)
)

// A run is one execution of take.lua, for any number of requests. take.lua describes the arguments and the reply.
type run struct {
	requests []*Request
	keys     []string     // each once
	params   []tat.Params // each once; many ops share them
	periods  []tat.Period // of quotas, each once
	ops      []byte       // five for each charge, in the order of the requests
	long     bool         // the ops say more than the short form of the arguments

	args []any      // of the command
	cmd  *redis.Cmd // once it is sent
}

const (
	flagLast   = 1
	flagShadow = 2
	flagQuota  = 4
)

// reset makes the run empty. It keeps its memory.
func (r *run) reset() {
	*r = run{
		requests: r.requests[:0], keys: r.keys[:0], params: r.params[:0], periods: r.periods[:0], ops: r.ops[:0], args: r.args[:0],
	}
}

// add adds a request. index says where each key is in keys.
func (r *run) add(q *Request, index map[string]int) {
	r.requests = append(r.requests, q)
	for i, key := range q.Keys {
		k, known := index[key]
		if !known {
			k = len(r.keys)
			index[key] = k
			r.keys = append(r.keys, key)
		}

		c := &q.Charges[i]
		periods, flags := byte(0), byte(0)
		if i == len(q.Keys)-1 {
			flags |= flagLast
		}
		if c.Shadow {
			flags |= flagShadow
		}
		if c.Periods != nil {
			flags |= flagQuota
			periods = indexIn(&r.periods, q.periods(c))
		}
		r.ops = append(r.ops, byte(k>>8), byte(k), indexIn(&r.params, c.Params), periods, flags)

		// The short form has one charge for each admission and key, no shadow and no quota.
		r.long = r.long || known || flags != flagLast
	}
}

// indexIn returns the index of v in the list, which it adds if it is new.
func indexIn[T comparable](list *[]T, v T) byte {
	i := slices.Index(*list, v)
	if i < 0 {
		i = len(*list)
		*list = append(*list, v)
	}
	return byte(i)
}

// write puts the arguments together.
func (r *run) write(script *Script) {
	r.args = append(r.args, "evalsha", script.sha)
	// On several slots the keys and their number are arguments, behind 0 keys that are declared.
	if script == severalSlots {
		r.args = append(r.args, 0)
	}
	r.args = append(r.args, len(r.keys))
	for i := range r.keys {
		r.args = append(r.args, &r.keys[i]) // a string would be copied to the heap
	}

	if p := &r.params[0]; !r.long && len(r.params) == 1 && p.Lowers() {
		if r.args = append(r.args, p.Inc, p.Room); p.Top != p.Room {
			r.args = append(r.args, p.Top)
		}
		return
	}

	r.args = append(r.args, r.ops)
	for _, p := range r.params {
		unit := int64(0)
		if p.Late {
			unit = p.Emission
		}
		r.args = append(r.args, p.Inc, p.Room, p.Top, unit)
	}
	// The script counts them from the end of ARGV, as it does not know how many params there are.
	for _, p := range slices.Backward(r.periods) {
		r.args = append(r.args, p.Before, p.Begin, p.End, p.Next)
	}
}
