// Package notice hands a problem that a key function has found to the limiter
// that called it, which logs it. Package keyfunc reports through the context of
// the request and so needs no logger and no limiter.
//
// A report is made on every request that has the problem. The receiver decides
// how often it is logged. For [diag.KeyBeforeAuth] and [diag.RouteUnknown], which
// are problems only if none of a policy's first requests has a user or a route,
// it has a text of its own.
package notice

import (
	"context"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// Key finds the [Receiver] in a context.
type Key struct{}

// Receiver takes reports, in the goroutine that called the key function. The text
// holds nothing that a client has sent; args are attributes as in [slog.Log].
type Receiver interface {
	Notice(code diag.Code, text string, args ...any)
}

// Report hands a problem to the Receiver in the context. Without one it does
// nothing.
func Report(ctx context.Context, code diag.Code, text string, args ...any) {
	if to, ok := ctx.Value(Key{}).(Receiver); ok {
		to.Notice(code, text, args...)
	}
}
