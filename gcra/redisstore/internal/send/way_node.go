package send

import (
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// wayNode is for a node of a cluster: one script for keys in any of its slots, which it does not declare, with the flag
// allow-cross-slot-keys (Redis 7.0 and newer, Valkey). The node checks the slot of each key when the script reads it. So a stale
// topology or a slot that moves does no harm: an admission with such a key is not decided, and sent again by the client,
// in a script for its subject. So are all admissions of a script that the node refuses.
type wayNode struct{ waySubject }

// severalSlots is the form in which take.lua gets its keys as arguments.
var severalSlots = NewScript("#!lua flags=allow-cross-slot-keys\n" + takeLua)

func (wayNode) shares(string) string { return "" }

// notRun is true for the errors that prove that nothing was written: Redis refuses the script, or the script itself fails
// and does not say that it has written. Any other error, such as a proxy's that has lost the node, may follow a charge.
func (wayNode) notRun(s *script, err error) bool {
	if s.form != severalSlots || !rediskit.IsReply(err) {
		return false
	}
	text := err.Error()
	return !strings.Contains(text, "some keys are written") &&
		(!rediskit.Unknown(err) || strings.Contains(text, "user_script:") || strings.Contains(text, "in script shebang"))
}
