package send

import (
	"context"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// wayApart is for an endpoint that runs scripts away from their keys: nothing is sent but, now and then, the test. Each
// bucket would exist on several servers, and requests with other policies would not see what was charged.
type wayApart struct{ wayWhole }

func (wayApart) send(ctx context.Context, b *batch) error {
	if b.test != nil {
		b.test.run(ctx, b.client)
	}
	return rediskit.ErrKeysApart
}
