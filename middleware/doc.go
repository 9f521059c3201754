// Package middleware limits requests: it decides by policies whether a request may go on,
// sets the RateLimit fields of the response, and answers a request above its limit with 429
// and, if a wait helps, Retry-After.
//
// A [Policy] says who is counted (its Key) and how much each key may do (its Limit). A
// [Limiter] holds policies and charges all that apply to a request:
//
//	limiter, err := middleware.New(middleware.Config{Store: store},
//		middleware.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
//		middleware.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(5), Routes: []string{"POST /login"}},
//	)
//
// The adapters put a limiter into a framework. Elsewhere, as in a gateway, use it directly:
//
//	r, ok := limiter.Allow(w, r)
//	if !ok {
//		return // denied, and the response is written
//	}
//
// or [Limiter.Admit], which sets header fields and writes no response, or
// [Limiter.Decide], which does neither.
//
// # For adapters
//
// Package adapter has what puts a limiter into another framework. [Policy.Charge], [Policy.Kinds],
// [Policy.Limits] and [Policy.OverrideOf] are for pages and commands that show what applies to a subject.
//
// # What is promised
//
//   - A request that one policy denies costs the limiter's other policies nothing. So put
//     policies that belong together into one limiter. If an inner limiter denies the request,
//     the charge of the outer one stays.
//   - The charge of a client that hangs up stays.
//   - A denial does not show the cause of a failure, unless your Deny writes it.
//   - The ResponseWriter of handlers is not wrapped, so flushing, hijacking and
//     [http.ResponseController] work as without a limiter.
//
// SECURITY.md has the bound, and what failures may cost.
//
// # Failure
//
// The store may fail, and a Key, LimitFor, Override, Cost or Skip may fail or
// panic. The policies concerned then follow their [FailureMode]: by default this
// server goes on limiting by itself. [Decision.Err] has the cause.
package middleware

// Where to change what, along the way of a request:
//
//	config.go, fielderror.go  Config and Policy; New compiles the policies
//	reload.go, reset.go       changes while a limiter runs: policies, observers, buckets
//	limiter.go                Allow, Admit, Decide and Peek: the steps that follow, in order
//	requeststate.go           how a request carries what its limiter knows; gets the problems of key functions
//	admission.go              what a limiter charges for a request, and how the stores take it
//	policies.go               the policies of a limiter; internal/routes: which apply to the route
//	policy.go                 a policy's functions make a charge
//	panic.go                  a panic of these functions or of a store becomes an error
//	failure.go                OnFailure
//	decision.go               the Decision about all charges
//	headers.go                which RateLimit fields to write; headers_text.go: their text
//	denial.go                 the response to a denied request; internal/denial writes it
//	settle.go                 Settle, Spend and Refund, which handlers call
//	publish.go                what other servers and commands get to know of the policies
//	diagnostics*.go           problems for Config.Logger: of one request, of the first ones, of shared names
//	debug.go                  the line about each decision
