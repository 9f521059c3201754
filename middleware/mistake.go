package middleware

import "fmt"

// A Mistake is one thing that is wrong with a policy. [New] and
// [Limiter.Reload] return one for each, joined by [errors.Join], so that a
// program that has read its policies from elsewhere can say where it stands
// there.
type Mistake struct {
	Index int    // of the policy among those given, from 0
	Name  string // of the policy; empty if it has none
	Field string // of [Policy], such as "Limit" or "Routes[0]"
	Err   error  // what is wrong with the field, and what would be right
}

func (m *Mistake) Error() string {
	title := fmt.Sprintf("policy %q", clip(m.Name))
	if m.Name == "" {
		title = fmt.Sprintf("policy number %d", m.Index+1)
	}
	return fmt.Sprintf("ratelimit: %s: %s %v", title, m.Field, m.Err)
}

func (m *Mistake) Unwrap() error { return m.Err }
