// Package notice hands a problem that a key function has found to the limiter
// that called it, which logs it. Package keyfunc reports through the context of
// the request and so needs no logger and no limiter.
//
// Each code names one problem:
//
//	jwt-without-exp  a token with a valid signature has no expiry, so JWTSubject
//	                 does not count it
//	jwt-empty-key    the application's jwt.Keyfunc returned an empty key, with
//	                 which every client can sign; the key is not used
//	route-unknown    Route was called a hundred times in this process and no
//	                 request had a route
//	proxy-ignored    a request of a private peer has X-Forwarded-For, and the
//	                 key does not read it
//	key-before-auth  the request has no user. This is a problem only if none of
//	                 a policy's first requests has one, which the limiter finds out
//
// A report is made on every request that has the problem. How often it is
// logged is for the reader of the reports to decide. No text holds anything
// that a client has sent.
package notice

import "context"

// The codes of the reports.
const (
	JWTWithoutExp = "jwt-without-exp"
	JWTEmptyKey   = "jwt-empty-key"
	RouteUnknown  = "route-unknown"
	ProxyIgnored  = "proxy-ignored"
	KeyBeforeAuth = "key-before-auth"
)

// Func takes a report. It must be safe for concurrent use.
type Func func(code, text string)

// Receiver takes reports as a Func does.
type Receiver interface {
	Notice(code, text string)
}

// Key finds the Func in a context. A context type of the caller's own may
// answer it in its Value method, with a value of type Func or a [Receiver].
type Key struct{}

// With returns a context whose reports go to f.
func With(ctx context.Context, f Func) context.Context {
	return context.WithValue(ctx, Key{}, f)
}

// Report hands a problem to the Func in the context. Without one it does nothing.
func Report(ctx context.Context, code, text string) {
	switch to := ctx.Value(Key{}).(type) {
	case Func:
		if to != nil {
			to(code, text)
		}
	case Receiver:
		to.Notice(code, text)
	}
}
