package send

import (
	"context"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra/redisstore/redisstats"
	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// A Target is the server of a key, for calls: they wait in no line, and do not ask the breaker. Targets of the same server are
// equal.
type Target struct{ *line }

// A Call is a run of another script than take.lua.
type Call struct {
	Args    []any // the number of keys, the keys, and the arguments
	Replies int   // how many numbers the reply has
	Learn   func(reply []int64)
}

// Target returns the Target of a key.
func (s *Sender) Target(key string) Target { return Target{s.line(key)} }

// Group names the group of a key: the keys of one group may be in one call.
func (t Target) Group(key string) string {
	if t.state().Kind == redisstats.OneKeyspace {
		return ""
	}
	return tagOf(key)
}

// Run makes calls of a script together. It stops waiting after the Timeout, whatever the client's own settings; a late reply
// is learned all the same. The error is one of a call.
func (t Target) Run(script *Script, calls []Call) (err error) {
	if t.state().Kind == redisstats.Unusable {
		return rediskit.ErrKeysApart
	}

	runs := make([]run, len(calls))
	for i, call := range calls {
		runs[i].args = slices.Concat([]any{"evalsha", script.sha}, call.Args)
	}

	ctx, cancel := context.WithTimeoutCause(context.Background(), t.sender.Timeout, rediskit.NoAnswer(t.sender.Timeout))
	defer cancel()
	err = await.Call(ctx, func() error {
		return rediskit.Call(func() (err error) {
			script.send(ctx, t.client(redisstats.BySubject), runs, nil)
			for i, call := range calls {
				reply, callErr := rediskit.Reply(runs[i].cmd, call.Replies)
				if callErr != nil {
					err = callErr // the other calls have run all the same, so their replies are learned
					continue
				}
				call.Learn(reply)
			}
			return err
		})
	})
	t.sender.learnTopology(err)
	return err
}
