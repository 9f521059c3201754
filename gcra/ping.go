package gcra

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Ping reports whether the store works: it connects to the server, to every
// master of a cluster or to every shard of a ring, authenticates, and runs the
// store's script on the key <Prefix>{ping}, which expires at once. The error
// says what is wrong and what to do about it, on a line for each server. It needs
// no more of the user's ACL than Take.
//
// Ping asks Redis even while Take leaves it alone after failures. Without
// a deadline in ctx it takes at most 2 s; Timeout does not bound it. Call it when
// a program starts, to tell what is wrong; the program may start all the same.
func (r *Redis) Ping(ctx context.Context) error {
	if r.once.Do(r.init); r.invalid != nil {
		return r.invalid
	}
	r.dials.forget()
	inc := ticksIn(time.Millisecond)
	room := 1000 * inc // for as many others at the same time
	err := rediskit.Ping(ctx, r.client, r.prefix(), func(ctx context.Context, server redis.UniversalClient, key string) error {
		// Both commands: a server that has the script would hide a missing EVAL.
		for _, script := range [][2]string{{"eval", takeLua}, {"evalsha", takeSHA}} {
			cmd := rediskit.Send(ctx, server, []any{script[0], script[1], 1, key, "", inc, room, room})
			if _, err := rediskit.Reply(cmd, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("gcra: %w", err)
	}
	return nil
}
