package ratelimit

import (
	"context"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// Types of package middleware, which documents them.
type (
	Config       = middleware.Config       // store, headers, logger
	Policy       = middleware.Policy       // who is counted, and how much each key may do
	Override     = middleware.Override     // what is different for one key
	Limiter      = middleware.Limiter      // decides by its policies
	Decision     = middleware.Decision     // what a Limiter decided about a request
	PolicyResult = middleware.PolicyResult // the part of one policy in a Decision
	Headers      = middleware.Headers      // which RateLimit fields responses have
	FailureMode  = middleware.FailureMode  // what a policy does when it cannot be decided
	FieldError   = middleware.FieldError   // a mistake in a field of a Policy
	SettleError  = middleware.SettleError  // the units that Decision.Settle could not take
)

// The values of Config.Headers. See [middleware.Headers].
const (
	HeadersDraft6     = middleware.HeadersDraft6     // RateLimit-Limit, -Remaining, -Reset and -Policy; the default
	HeadersDraft11    = middleware.HeadersDraft11    // RateLimit and RateLimit-Policy, lists of policies
	HeadersXRateLimit = middleware.HeadersXRateLimit // X-RateLimit-Limit, -Remaining and -Reset
	HeadersNone       = middleware.HeadersNone       // none of them; alone
)

// The values of Policy.OnFailure. See [middleware.FailureMode].
const (
	FailLocal  = middleware.FailLocal  // limit with the state of this server; the default
	FailOpen   = middleware.FailOpen   // let the request pass this policy
	FailClosed = middleware.FailClosed // deny the request, but not for a Shadow
)

// NewLimiter returns a Limiter for From. See [middleware.New].
func NewLimiter(cfg Config, policies ...Policy) (*Limiter, error) {
	return middleware.New(cfg, policies...)
}

// Must returns l. It panics if err is not nil, or l is nil. See [middleware.Must].
func Must(l *Limiter, err error) *Limiter { return middleware.Must(l, err) }

// FromContext returns the Decision that a request carries, or nil. See [middleware.FromContext].
func FromContext(ctx context.Context) *Decision { return middleware.FromContext(ctx) }
