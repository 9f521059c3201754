package ratelimit

import (
	"context"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// The types of package middleware under this package's name.
type (
	// Config says how a limiter works, such as its store, headers and logger. See
	// [middleware.Config].
	Config = middleware.Config

	// Policy says who is counted, and how much each key may do. See [middleware.Policy].
	Policy = middleware.Policy

	// Override is what is different for one key of a policy. See
	// [middleware.Override].
	Override = middleware.Override

	// Limiter decides about requests by its policies. See [middleware.Limiter].
	Limiter = middleware.Limiter

	// Decision is what a Limiter decided about a request. See
	// [middleware.Decision].
	Decision = middleware.Decision

	// PolicyResult is the part of one policy in a Decision. See
	// [middleware.PolicyResult].
	PolicyResult = middleware.PolicyResult

	// Headers chooses the RateLimit fields of responses. See
	// [middleware.Headers].
	Headers = middleware.Headers

	// FailureMode is what a policy does when it cannot be decided, for example
	// because the store does not answer. See [middleware.FailureMode].
	FailureMode = middleware.FailureMode

	// FieldError is a mistake in a field of a Policy. See [middleware.FieldError].
	FieldError = middleware.FieldError

	// SettleError is an error of Decision.Settle, with the units that it could not
	// take. See [middleware.SettleError].
	SettleError = middleware.SettleError
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
	FailLocal  = middleware.FailLocal  // go on limiting with the state of this server; the default
	FailOpen   = middleware.FailOpen   // let the request pass this policy
	FailClosed = middleware.FailClosed // deny the request, but not for a Shadow
)

// NewLimiter returns a Limiter for From, and mistakes of the configuration as an error.
// See [middleware.New].
func NewLimiter(cfg Config, policies ...Policy) (*Limiter, error) {
	return middleware.New(cfg, policies...)
}

// Must returns l. It panics if err is not nil, or l is nil. See [middleware.Must].
func Must(l *Limiter, err error) *Limiter { return middleware.Must(l, err) }

// FromContext returns the Decision that a request carries, or nil. See
// [middleware.FromContext].
func FromContext(ctx context.Context) *Decision { return middleware.FromContext(ctx) }
