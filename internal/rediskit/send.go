package rediskit

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/await"
)

// MovingPause is the first pause after TRYAGAIN; each further one is twice as long. The keys of a subject move in
// about a round trip, or in some 10 ms on a busy node.
const MovingPause = time.Millisecond

// BoundsCalls reports whether a call of the client ends with the deadline of its context, at most timeout
// from now. Then a store may call it in the goroutine of its own caller; otherwise another one must
// wait for the client. A cluster client may ask for the topology without a deadline.
func BoundsCalls(client redis.UniversalClient, timeout time.Duration) bool {
	c, ok := client.(*redis.Client)
	if !ok {
		return false
	}
	o := c.Options()
	settings := o.ContextTimeoutEnabled && o.PoolTimeout <= timeout
	deadlines := o.ReadTimeout >= 0 && o.WriteTimeout >= 0 // below, go-redis sets none

	// go-redis calls these in the caller's goroutine, and they may ignore the context.
	functions := o.OnConnect != nil || o.Limiter != nil || o.CredentialsProvider != nil || o.CredentialsProviderContext != nil || o.StreamingCredentialsProvider != nil
	return settings && deadlines && !functions
}

// Call calls f, which uses a client. A panic, as in a hook of the client, becomes an error.
func Call(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = fmt.Errorf("panic: %v", p)
		}
	}()
	return f()
}

// newCmd returns a command with these arguments.
func newCmd(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetStepCount(1) // without it a cluster client sends COMMAND in the first call
	return cmd
}

// Send sends an EVALSHA once and returns it with its reply or error.
func Send(ctx context.Context, client redis.UniversalClient, args []any) *redis.Cmd {
	cmd := newCmd(ctx, args)
	_ = client.Process(ctx, Once{Cmd: cmd}) // the command keeps its error
	return cmd
}

// Queue adds a command with these arguments to a pipeline, to be sent once, and returns it.
func Queue(ctx context.Context, pipe redis.Pipeliner, args []any) *redis.Cmd {
	cmd := newCmd(ctx, args)
	_ = pipe.Process(ctx, Once{Cmd: cmd}) // queues; the answer is the command's
	return cmd
}

// Exec sends a pipeline of queued commands. Afterwards each has its reply or an error: go-redis leaves both out when a
// new connection fails before the first command.
func Exec(ctx context.Context, pipe redis.Pipeliner) {
	cmds, err := pipe.Exec(ctx)
	for _, cmd := range cmds {
		if once, ok := cmd.(Once); ok && err != nil && once.Err() == nil && once.Val() == nil {
			once.SetErr(err)
		}
	}
}

// SendAgain returns cmd, an EVALSHA that was sent, unless its error says that the script has not
// run. Then it sends the script again and returns that command:
//
//   - NOSCRIPT: see WithText.
//   - TRYAGAIN: after growing pauses, while the deadline of ctx allows. The slot moves and its
//     keys are on two nodes.
func SendAgain(ctx context.Context, client redis.UniversalClient, cmd *redis.Cmd, text string) *redis.Cmd {
	cmd = WithText(ctx, client, cmd, text)
	for pause := MovingPause; redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") && await.Sleep(ctx, pause) == nil; pause *= 2 {
		cmd = WithText(ctx, client, Send(ctx, client, cmd.Args()), text)
	}
	return cmd
}

// WithText returns cmd, an EVALSHA that was sent, or if the server does not have the script, an EVAL of its text. The
// server has restarted, was flushed, or has only just become the owner of the keys.
func WithText(ctx context.Context, client redis.UniversalClient, cmd *redis.Cmd, text string) *redis.Cmd {
	if err := cmd.Err(); err == nil || !redis.HasErrorPrefix(err, "NOSCRIPT") {
		return cmd
	}
	return Send(ctx, client, slices.Concat([]any{"eval", text}, cmd.Args()[2:]))
}
