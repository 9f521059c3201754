package gcra

import (
	"context"
	"crypto/sha1"
	_ "embed"
	"encoding/hex"
	"errors"
	"fmt"
	"net"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

//go:embed take.lua
var takeLua string

var takeSHA = func() string {
	sum := sha1.Sum([]byte(takeLua))
	return hex.EncodeToString(sum[:])
}()

// script is one call of take.lua, which describes the arguments: any number of
// rides, each of which takes all or none.
type script struct {
	rides   []*ride
	keys    map[string]int // key: its place among the keys
	args    []any          // command, sha, number of keys, keys
	demands []demand       // each once; many fares have them in common
	plan    []byte         // 4 bytes a fare
	mixed   bool           // needs the plan: not one fare on each key in turn, of one demand
	cmd     *redis.Cmd
	err     error // why there is no answer
}

// maxDemands bounds the different demands of a script. Only one ride alone may
// bring more.
const maxDemands = 32

const (
	flagLast   = 1
	flagShadow = 2
)

func newScript() script { return script{keys: make(map[string]int)} }

func (s *script) reset() {
	clear(s.rides)
	clear(s.keys)
	clear(s.args)
	*s = script{rides: s.rides[:0], keys: s.keys, args: s.args[:0], demands: s.demands[:0], plan: s.plan[:0]}
}

// add appends a ride, and reports false when its demands do not fit.
func (s *script) add(rd *ride) bool {
	demands, plan := len(s.demands), len(s.plan)
	for i := range rd.fares {
		f := &rd.fares[i]
		flags := byte(0)
		if f.shadow {
			flags |= flagShadow
		}
		if i == len(rd.fares)-1 {
			flags |= flagLast
		}
		s.plan = append(s.plan, 0, 0, s.demand(f.demand), flags)
	}
	if len(s.rides) > 0 && len(s.demands) > maxDemands {
		s.demands, s.plan = s.demands[:demands], s.plan[:plan]
		return false
	}
	if len(s.args) == 0 {
		s.args = append(s.args, "evalsha", takeSHA, 0)
	}
	for i := range rd.fares {
		key := rd.fares[i].key
		k, known := s.keys[key]
		if !known {
			k = len(s.keys)
			s.keys[key] = k
			s.args = append(s.args, key)
		}
		s.plan[plan+4*i], s.plan[plan+4*i+1] = byte(k>>8), byte(k)
		s.mixed = s.mixed || known
	}
	f := &rd.fares[0]
	s.mixed = s.mixed || len(rd.fares) > 1 || len(s.demands) > 1 || f.shadow || !f.takes()
	s.rides = append(s.rides, rd)
	return true
}

// demand returns the place of d.
func (s *script) demand(d demand) byte {
	for i := range s.demands {
		if s.demands[i] == d {
			return byte(i)
		}
	}
	s.demands = append(s.demands, d)
	return byte(len(s.demands) - 1)
}

// run sends the script and waits for the answer.
func (s *script) run(ctx context.Context, client redis.UniversalClient) {
	_ = client.Process(ctx, s.command(ctx, s.evalsha())) // the command keeps its error
	s.sendAgain(ctx, client)
}

// sendAgain sends the script again where the answer says that it has not run.
func (s *script) sendAgain(ctx context.Context, client redis.UniversalClient) {
	s.cmd = rediskit.SendAgain(ctx, client, s.cmd, takeLua)
}

// command is the next to send; s.cmd has its answer.
func (s *script) command(ctx context.Context, args []any) redis.Cmder {
	s.cmd = rediskit.NewCmd(ctx, args)
	return rediskit.Once{Cmd: s.cmd}
}

func (s *script) evalsha() []any {
	s.args[2] = len(s.keys)
	plan := s.plan
	if !s.mixed {
		plan = nil
	}
	s.args = append(s.args, plan)
	for _, d := range s.demands {
		s.args = append(s.args, d.inc, d.room, d.top)
	}
	return s.args
}

// unknown reports that the server does not have the script: it has restarted,
// was flushed or is new.
func (s *script) unknown() bool {
	err := s.cmd.Err()
	return err != nil && redis.HasErrorPrefix(err, "NOSCRIPT")
}

// eval is evalsha's arguments with the script's text, after which the server
// has it.
func (s *script) eval() []any {
	s.args[0], s.args[1] = "eval", takeLua
	return s.args
}

// settle hands the answer, or the error, to each ride.
func (s *script) settle(panicked error) {
	var reply []int64
	if s.err = panicked; s.err == nil {
		reply, s.err = rediskit.Reply(s.cmd, len(s.plan)/4)
	}
	if s.err != nil {
		var timeout net.Error
		if errors.As(s.err, &timeout) && timeout.Timeout() && !errors.Is(s.err, context.DeadlineExceeded) {
			s.err = fmt.Errorf("%w: %w", s.err, context.DeadlineExceeded)
		}
		err := &failure{s.err}
		for _, rd := range s.rides {
			rd.err = err
		}
		return
	}
	for _, rd := range s.rides {
		rd.settle(reply)
		reply = reply[len(rd.fares):]
	}
}
