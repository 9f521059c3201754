package send

import (
	"cmp"
	"context"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// wayNode is for a node of a cluster: one script for keys in any of its slots, which it does not declare, with the flag
// allow-cross-slot-keys (Redis 7.0 and newer, Valkey). The node checks the slot of each key when the script reads it. So a stale
// topology or a slot that moves does no harm: an admission with such a key is not decided, and sent again by the client,
// in a script for its subject. So are all admissions of a script that the node refuses.
type wayNode struct{}

// severalSlots is the form in which take.lua gets its keys as arguments.
var severalSlots = NewScript("#!lua flags=allow-cross-slot-keys\n" + takeLua)

func (wayNode) shares(string) string { return "" }

func (wayNode) send(ctx context.Context, b *batch) error {
	if b.several {
		b.scripts[0].send(ctx, b.node, severalSlots)
	} else {
		b.scripts[0].send(ctx, b.client, ordinary)
	}
	return nil
}

// notRun is true for the errors that prove that nothing was written: those with which Redis refuses a script, and those
// of the script itself unless it says that it has written. Any other, such as that of a proxy that has lost the node,
// may follow a charge.
func (wayNode) notRun(s *script) bool {
	if s.form != severalSlots || !isReply(s.err) {
		return false
	}
	text := s.err.Error()
	return !strings.Contains(text, "some keys are written") &&
		(!rediskit.Unknown(s.err) || strings.Contains(text, "user_script:") || strings.Contains(text, "in script shebang"))
}

// crossing is what a batcher knows about scripts for several slots.
type crossing struct {
	until  int64 // when to try again, after the server has answered one with an error
	paused bool  // none are sent after a batch that failed, until one with a script for each subject is answered
}

// crossingRetry is how long a server that does not run scripts for several slots gets
// none. It may be a proxy in the middle of a deployment, or run a newer version by then.
const crossingRetry = time.Minute

// slotMoves is in the error of Redis 7.4 if a script writes a key whose slot is moving.
const slotMoves = "attempted to access a non local key"

// allows reports whether the request may go in one script with those of other subjects.
func (c *crossing) allows(q *Request, now int64) bool {
	return q.node != nil && !q.byClient && !c.paused && now >= c.until
}

// learn records the result of a batch.
func (c *crossing) learn(batch *batch, err error, now int64) {
	err = cmp.Or(err, batch.notRunErr)
	crossed := batch.way == byNode && batch.several
	if err != nil || !crossed {
		c.paused = err != nil
	}
	if crossed && isReply(err) && (!rediskit.Down(err) || rediskit.Unknown(err)) && !strings.Contains(err.Error(), slotMoves) {
		c.until = now + tat.Ticks(crossingRetry)
	}
}
