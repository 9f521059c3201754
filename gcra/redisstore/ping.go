package redisstore

import (
	"context"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// Ping reports whether the store works: it connects to the server, to every
// master of a cluster or to every shard of a ring, authenticates, and runs the
// store's script on the key <Prefix>{ping}, which expires within 10 seconds. The error
// says what is wrong and what to do about it, on a line for each server. It needs
// no more of the user's ACL than Take.
//
// Ping calls Redis even while the circuit breaker is open. Without a deadline in ctx
// it takes at most 2 s; Timeout does not bound it. Call it when a program starts, to
// see what is wrong; the program may start all the same.
func (s *Store) Ping(ctx context.Context) error {
	if s.once.Do(s.init); s.invalid != nil {
		return s.invalid
	}
	s.dials.forget()
	inc := tat.Ticks(time.Millisecond)
	room := 1000 * inc // for as many Pings at the same time
	err := rediskit.Ping(ctx, s.client, s.prefix(), func(ctx context.Context, server redis.UniversalClient, key string) error {
		// Both commands: a server that has the script would hide a missing EVAL.
		for _, script := range [][2]string{{"eval", ordinary.text}, {"evalsha", ordinary.sha}} {
			cmd := rediskit.Send(ctx, server, []any{script[0], script[1], 1, key, "", inc, room, room})
			if _, err := rediskit.Reply(cmd, 1); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("redisstore: %w", err)
	}
	return nil
}
