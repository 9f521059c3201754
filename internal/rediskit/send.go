package rediskit

import (
	"context"
	"slices"
	"time"

	"github.com/redis/go-redis/v9"
)

// moving is how long SendAgain waits while the keys of a script move, which takes
// about as long as a trip.
const moving = 2 * time.Millisecond

// NewCmd returns an EVALSHA or EVAL of these arguments.
func NewCmd(ctx context.Context, args []any) *redis.Cmd {
	cmd := redis.NewCmd(ctx, args...)
	cmd.SetStepCount(1) // otherwise a cluster client asks a server for it, with COMMAND, in the first call
	return cmd
}

// Send sends an EVALSHA and waits for the answer, which may be an error.
func Send(ctx context.Context, client redis.UniversalClient, args []any) *redis.Cmd {
	cmd := NewCmd(ctx, args)
	_ = client.Process(ctx, Once{Cmd: cmd}) // the command keeps its error
	return cmd
}

// SendAgain takes the answer to an EVALSHA and returns it, unless it says that
// the script has not run. Then the script is sent again and the new answer
// returned: as an EVAL of its text where the server does not have it (NOSCRIPT),
// having restarted, been flushed or just become the one that owns the keys; and
// once more after a few milliseconds, if the deadline of ctx allows, where a move
// of the slot has its keys on both sides (TRYAGAIN).
func SendAgain(ctx context.Context, client redis.UniversalClient, cmd *redis.Cmd, text string) *redis.Cmd {
	if cmd.Err() == nil {
		return cmd
	}
	cmd = withText(ctx, client, cmd, text)
	if redis.HasErrorPrefix(cmd.Err(), "TRYAGAIN") && sleep(ctx, moving) {
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

// sleep reports false when ctx ends first.
func sleep(ctx context.Context, d time.Duration) bool {
	if deadline, ok := ctx.Deadline(); ok && time.Until(deadline) <= d {
		return false
	}
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
		return true
	case <-ctx.Done():
		return false
	}
}
