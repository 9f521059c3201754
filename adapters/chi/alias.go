package ratelimit

import (
	"context"

	"github.com/seed-e377111c/ratelimit/middleware"
)

// The names of package middleware, so that an application imports one package.
type (
	Config       = middleware.Config
	Policy       = middleware.Policy
	Limiter      = middleware.Limiter
	Decision     = middleware.Decision
	PolicyResult = middleware.PolicyResult
	Headers      = middleware.Headers
	FailureMode  = middleware.FailureMode
)

// What [Config] and [Policy] choose from.
const (
	HeadersDraft6     = middleware.HeadersDraft6
	HeadersDraft11    = middleware.HeadersDraft11
	HeadersXRateLimit = middleware.HeadersXRateLimit
	HeadersNone       = middleware.HeadersNone

	FailLocal  = middleware.FailLocal
	FailOpen   = middleware.FailOpen
	FailClosed = middleware.FailClosed
)

// FromContext is [middleware.FromContext]: the Decision that a request carries,
// or nil.
func FromContext(ctx context.Context) *Decision { return middleware.FromContext(ctx) }
