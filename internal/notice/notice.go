// Package notice passes a problem from a key function to the limiter that called it, which logs it.
// Package keyfunc reports through the context of the request and so needs neither logger nor
// limiter.
//
// Every request with the problem makes a report; the receiver decides how often to log it.
// [diag.AnonymousOnly] and [diag.RouteUnknown] are problems only if none of a policy's first
// requests has a user or a route. The receiver has its own text for them.
package notice

import (
	"context"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Key finds the [Receiver] in a context.
type Key struct{}

// Receiver gets reports, in the goroutine that called the key function. The text contains nothing
// that a client has sent; args are attributes as in [slog.Log].
type Receiver interface {
	Notice(code diag.Code, text string, args ...any)
}

// Report passes a problem to the Receiver in the context, if there is one.
func Report(ctx context.Context, code diag.Code, text string, args ...any) {
	if to, ok := ctx.Value(Key{}).(Receiver); ok {
		to.Notice(code, text, args...)
	}
}
