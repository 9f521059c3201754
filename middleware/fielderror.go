package middleware

import "fmt"

// A FieldError is a mistake in a field of a [Policy]. [New] and [Limiter.Reload] return
// them joined by [errors.Join].
type FieldError struct {
	Index int    // index of the policy in the arguments
	Name  string // name of the policy, "" if it has none
	Field string // field of [Policy], such as "Limit" or "Routes[0]"
	Err   error  // the mistake, and what would be right
}

// Error returns the policy, the field and the mistake.
func (e *FieldError) Error() string {
	title := fmt.Sprintf("policy %.80q", e.Name)
	if e.Name == "" {
		title = fmt.Sprintf("policy number %d", e.Index+1)
	}
	return fmt.Sprintf("ratelimit: %s: %s %v", title, e.Field, e.Err)
}

// Unwrap returns e.Err.
func (e *FieldError) Unwrap() error { return e.Err }
