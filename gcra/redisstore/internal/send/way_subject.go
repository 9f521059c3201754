package send

import (
	"context"
	"slices"

	"github.com/redis/go-redis/v9"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// waySubject works wherever the keys of one subject are on one server: one script for each subject, in a pipeline. It is
// for one endpoint in front of a cluster, for nodes of a cluster that run no script for several slots, and for a server
// that has not shown yet what it is.
type waySubject struct{}

func (waySubject) shares(key string) string { return Tag(key) }

func (waySubject) send(ctx context.Context, b *batch) error {
	if b.n == 1 && b.test == nil {
		b.scripts[0].send(ctx, b.client, ordinary)
		return nil
	}

	pipe := b.client.Pipeline()
	for i := range b.scripts[:b.n] {
		s := &b.scripts[i]
		s.cmd = rediskit.Queue(ctx, pipe, s.evalsha(ordinary))
	}
	if b.test != nil {
		b.test.queue(ctx, pipe)
	}
	rediskit.Exec(ctx, pipe)

	var again redis.Pipeliner // one connection for all: others might have to be dialled
	for i := range b.scripts[:b.n] {
		if s := &b.scripts[i]; redis.HasErrorPrefix(s.cmd.Err(), "NOSCRIPT") {
			if again == nil {
				again = b.client.Pipeline()
			}
			s.cmd = rediskit.Queue(ctx, again, slices.Concat([]any{"eval", ordinary.text}, s.cmd.Args()[2:]))
		}
	}
	if again != nil {
		rediskit.Exec(ctx, again)
	}
	return nil
}

func (waySubject) notRun(*script) bool { return false }
