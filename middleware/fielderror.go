package middleware

import "fmt"

// A FieldError is one mistake in one field of a [Policy]. [New] and
// [Limiter.Reload] return one for each, joined by [errors.Join], so that a
// program that has read its policies from elsewhere can say where the mistake
// stands there.
type FieldError struct {
	Index int    // of the policy among those given, from 0
	Name  string // of the policy, "" where it is missing
	Field string // of [Policy], such as "Limit" or "Routes[0]"
	Err   error  // what is wrong with the field, and what would be right
}

func (e *FieldError) Error() string {
	title := fmt.Sprintf("policy %q", clip(e.Name))
	if e.Name == "" {
		title = fmt.Sprintf("policy number %d", e.Index+1)
	}
	return fmt.Sprintf("ratelimit: %s: %s %v", title, e.Field, e.Err)
}

func (e *FieldError) Unwrap() error { return e.Err }
