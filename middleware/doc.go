// Package middleware decides about HTTP requests by rate limits and tells the
// client: RateLimit fields on every response, 429 and Retry-After on a denial.
//
// A [Limiter] holds policies. Each policy that applies to a request names who
// is counted (its Key) and how much that one may do (its Limit). All of them
// are asked in one step of the [gcra.Store]: either every policy is charged or
// none is, so a request that one policy denies costs the others nothing. That
// holds within one Limiter. Of two, one inside the other, each charges on its own:
// when the inner one denies, the outer one's charge is not given back. So a client
// that is denied inside still counts outside, and may be denied there when it comes
// back after Retry-After. Policies that belong together go into one Limiter.
//
// The adapters put a Limiter into a framework. Elsewhere (a gateway, a gRPC
// server, another framework) use it directly:
//
//	r, ok := limiter.Allow(w, r)
//	if !ok {
//		return // denied, and the response is written
//	}
//
// or [Limiter.Decide], which writes nothing.
//
// The package assumes that the key function tells the truth; see package
// keyfunc. The ResponseWriter of handlers is never wrapped, so flushing,
// hijacking and [http.ResponseController] work as without a limiter.
//
// # When the answer cannot be had
//
// The store may be away, and a Key, LimitFor, Cost or Skip may fail or panic.
// Then each policy concerned goes its own way, see [FailureMode]; by default this
// server goes on limiting by itself. [Decision.Err] says why. The client
// is told nothing of the cause, and never gets a 429 for it: with
// [FailClosed] it gets a 503.
//
// # What is logged
//
// [Config.Logger] gets one line for each problem of the set-up, and another
// every five minutes while it lasts: a function of a policy that fails, a proxy
// that the keys ignore, one limiter that runs twice on a request. Each line has
// a code; docs/troubleshooting.md has symptom, cause and fix for each of them.
package middleware
