package inflight

import (
	"context"
	_ "embed"
	"fmt"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// call is one write of a key: what this server holds of it, and what it wants to hold.
type call struct {
	name   string // of the key
	number int64
	held   int
	lease  time.Duration
	wants  []*want
	sent   time.Time
	answer func(granted string, err error) // a second answer is ignored
}

// store carries out calls, and calls answer for each: with a character for each want, "1" if it is granted; for a call without
// wants with what all servers hold, or "" if that is not known; or with an error. It returns when all have an answer; it
// should do so when the context ends.
type store interface {
	write(ctx context.Context, id string, calls []*call)
}

// attempt is how long a call may take before the next is sent: two calls nearly fit into Timeout.
func (l *Limiter) attempt() time.Duration { return l.cfg.Timeout * 3 / 5 }

// write sends calls together, and returns when all have an answer, or their time is up.
func (l *Limiter) write(calls []*call) {
	ctx, cancel := context.WithTimeout(context.Background(), l.attempt())
	defer cancel()
	done := make(chan struct{})
	go func() {
		defer close(done)
		l.store.write(ctx, l.id, calls)
	}()

	select {
	case <-done:
	case <-ctx.Done(): // some clients ignore it
		for _, c := range calls {
			c.answer("", rediskit.NoAnswer(l.attempt()))
		}
	}
}

//go:embed write.lua
var writeLua string

//go:embed renew.lua
var renewLua string

// Redis knows the scripts by these.
var writeSHA, renewSHA = redis.NewScript(writeLua).Hash(), redis.NewScript(renewLua).Hash()

// redisStore carries out calls by write.lua, and many renewals together by renew.lua.
type redisStore struct {
	client redis.UniversalClient
	prefix string
}

// redisKey is the key in Redis: <prefix>{<key>}:slots, escaped and hashed as in redisstore.
func (s *redisStore) redisKey(name string) string {
	return string(rediskit.AppendKey(nil, s.prefix, name, "slots"))
}

// args are the arguments of write.lua.
func (s *redisStore) args(id string, c *call) []any {
	args := append(make([]any, 0, 8+2*len(c.wants)), "evalsha", writeSHA, 1, s.redisKey(c.name), id, c.number, c.held, c.lease.Milliseconds())
	for _, w := range c.wants {
		args = append(args, w.n, w.most)
	}
	return args
}

// reply returns the reply of a script, which has so many characters, or if that is 0 is a number.
func reply(cmd *redis.Cmd, length int) (string, error) {
	text, err := cmd.Text()
	switch {
	case err != nil:
		return "", err
	case length > 0 && (len(text) != length || strings.Trim(text, "01") != ""):
		return "", fmt.Errorf("%w: %.80q; want %d times 0 or 1", rediskit.ErrReply, text, length)
	}
	return text, nil
}

func (s *redisStore) write(ctx context.Context, id string, calls []*call) {
	err := rediskit.Call(func() error { // one that has an answer ignores a second
		if _, single := s.client.(*redis.Client); single && len(calls) > 1 {
			calls = s.renew(ctx, id, calls)
		}

		cmds := make([]*redis.Cmd, len(calls))
		if len(calls) == 1 {
			cmds[0] = rediskit.Send(ctx, s.client, s.args(id, calls[0]))
		} else {
			pipe := s.client.Pipeline() // on a cluster one for each node
			for i, c := range calls {
				cmds[i] = rediskit.Queue(ctx, pipe, s.args(id, c))
			}
			rediskit.Exec(ctx, pipe)
		}

		for i, c := range calls {
			c.answer(reply(rediskit.SendAgain(ctx, s.client, cmds[i], writeLua), len(c.wants)))
		}
		return nil
	})
	for _, c := range calls {
		if err != nil {
			c.answer("", err)
		}
	}
}

// renew renews leases in one script, and returns the calls that have no answer: all of them, if the keys are in several slots.
func (s *redisStore) renew(ctx context.Context, id string, calls []*call) (left []*call) {
	var leases []*call
	for _, c := range calls {
		if c.name == serversKey { // the script does not count servers
			left = append(left, c)
		} else {
			leases = append(leases, c)
		}
	}

	args := append(make([]any, 0, 4+4*len(leases)), "evalsha", renewSHA, len(leases))
	for _, c := range leases {
		args = append(args, s.redisKey(c.name))
	}
	args = append(args, id)
	for _, c := range leases {
		args = append(args, c.number, c.held, c.lease.Milliseconds())
	}

	renewed, err := reply(rediskit.SendAgain(ctx, s.client, rediskit.Send(ctx, s.client, args), renewLua), len(leases))
	for i, c := range leases {
		switch {
		case err == nil && renewed[i] == '1':
			c.answer("", nil)
		case err == nil || rediskit.IsReply(err):
			left = append(left, c)
		default: // the script may have run, and write.lua refuses a number that it has seen
			c.answer("", err)
		}
	}
	return left
}
