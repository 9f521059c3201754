package rediskit

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// tryAgainDelay is how long SendAgain waits after TRYAGAIN. Keys move in about a round trip.
const tryAgainDelay = 2 * time.Millisecond

// BoundsCalls reports whether a call of the client ends with the deadline of its context, at most timeout
// from now. Then a store may call it in the goroutine of its own caller; otherwise another one must
// wait for the client. A cluster client may ask for the topology without a deadline.
func BoundsCalls(client redis.UniversalClient, timeout time.Duration) bool {
	c, ok := client.(*redis.Client)
	return ok && c != nil && c.Options().ContextTimeoutEnabled && c.Options().PoolTimeout <= timeout
}

// NewCmd returns an EVALSHA or EVAL command with these arguments.
func NewCmd(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetStepCount(1) // without it a cluster client sends COMMAND in the first call
	return cmd
}

// Send sends an EVALSHA once and returns it with its reply or error.
func Send(ctx context.Context, client redis.UniversalClient, args []any) *redis.Cmd {
	cmd := NewCmd(ctx, args)
	_ = client.Process(ctx, Once{Cmd: cmd}) // the command keeps its error
	return cmd
}

// SendAgain returns cmd, an EVALSHA that was sent, unless its error says that the script has not
// run. Then it sends the script again and returns that command:
//
//   - NOSCRIPT: as an EVAL of its text. The server has restarted, was flushed, or has only just
//     become the owner of the keys.
//   - TRYAGAIN: once more after tryAgainDelay, if the deadline of ctx allows. The slot moves and its
//     keys are on two nodes.
func SendAgain(ctx context.Context, client redis.UniversalClient, cmd *redis.Cmd, text string) *redis.Cmd {
	if cmd.Err() == nil {
		return cmd
	}
	cmd = withText(ctx, client, cmd, text)
	if redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") && sleep(ctx, tryAgainDelay) {
		cmd = withText(ctx, client, Send(ctx, client, cmd.Args()), text)
	}
	return cmd
}

func withText(ctx context.Context, client redis.UniversalClient, cmd *redis.Cmd, text string) *redis.Cmd {
	if !redis.HasErrorPrefix(cmd.Err(), "NOSCRIPT") {
		return cmd
	}
	return Send(ctx, client, slices.Concat([]any{"eval", text}, cmd.Args()[2:]))
}

// sleep returns false if ctx ends first; if its deadline is earlier, at once.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	select {
	case <-time.After(d):
		return true
	case <-ctx.Done():
		return false
	}
}
