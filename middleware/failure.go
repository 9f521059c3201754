package middleware

import "fmt"

// FailureMode is what happens when a policy cannot be decided as configured: the
// store fails, or a function of the policy does.
type FailureMode uint8

const (
	// FailLocal goes on limiting with the state of this server alone, which grants
	// its share of each limit: see [Config.Instances]. If Skip or Key fails, the request
	// counts as anonymous; if Cost fails, it takes the whole burst. Where no limit is known,
	// as without Limit when Skip, Key, Override or LimitFor fails, it is FailClosed.
	FailLocal FailureMode = iota

	// FailOpen lets the request pass this policy.
	FailOpen

	// FailClosed denies the request, unless the policy is a Shadow. [Decision.Status] is 503,
	// or Config.BanStatus if another policy bans the client.
	FailClosed
)

// String returns the word that a policy file has for the mode.
func (m FailureMode) String() string {
	if words := [...]string{"local", "open", "closed"}; int(m) < len(words) {
		return words[m]
	}
	return fmt.Sprintf("FailureMode(%d)", uint8(m))
}
