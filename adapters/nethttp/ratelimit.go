// Package ratelimit limits requests in net/http, and in routers that take its
// middleware. For chi use adapters/chi, which knows chi's routes.
//
//	limit := ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//	)
//	http.ListenAndServe(addr, limit(mux))
//
// The middleware may wrap a ServeMux, the handler of one route, or another
// router, whose routes it does not know: Policy.Routes go by the path, and
// keyfunc.Route does not see them.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
package ratelimit

import (
	"context"
	"net/http"

	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// The types that most programs need. Package middleware has the others.
type (
	Config   = middleware.Config
	Policy   = middleware.Policy
	Decision = middleware.Decision
)

// FromContext returns the Decision that a request carries, or nil. See [middleware.FromContext].
func FromContext(ctx context.Context) *Decision { return middleware.FromContext(ctx) }

// New returns middleware that limits requests by the policies. It panics if the
// configuration is not valid: [middleware.New] returns the error.
func New(cfg Config, policies ...Policy) func(http.Handler) http.Handler {
	return From(middleware.Must(middleware.New(cfg, policies...)))
}

// From returns middleware that limits requests by l. If it wraps an [http.ServeMux],
// Policy.Routes and keyfunc.Route see the mux's routes. If there is other middleware
// between the two, see [Routes].
func From(l *middleware.Limiter) func(http.Handler) http.Handler {
	return through(adapter.GateOf(l))
}

// InFlight returns middleware that holds a slot of an *inflight.Gate while a handler runs:
//
//	handler := ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3}))(mux)
//
// Limit.Routes and keyfunc.Route get the route as with [From]. It panics if err is not nil.
func InFlight(gate adapter.Gate, err error) func(http.Handler) http.Handler {
	return through(middleware.Must(gate, err))
}

// through returns middleware whose requests pass the gate.
func through(gate adapter.Gate) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		limited := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r, release, ok := gate.Allow(w, r); ok {
				defer release()
				next.ServeHTTP(w, r)
			}
		})

		// A mux finds the route when it serves, which is too late for Routes.
		if mux, ok := next.(*http.ServeMux); ok {
			return Routes(mux)(limited)
		}
		return limited
	}
}

// Routes returns middleware that tells the limiters inside which route of mux will serve
// the request. Put it around a limiter, and inside [http.StripPrefix], if there is other
// middleware between the limiter and the mux:
//
//	handler := ratelimit.Routes(mux)(limit(logging(mux)))
//
// Without it, keyfunc.Route does not see the mux's routes, and a policy for "/users/{id}"
// counts /users/7/posts too. So it is for CONNECT, whose route a mux does not tell for certain.
func Routes(mux *http.ServeMux) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			_, pattern := mux.Handler(r)
			// For a CONNECT that it redirects, a mux returns the path of the request
			// as the pattern, and clients can invent paths.
			if r.Method == http.MethodConnect {
				pattern = ""
			}
			next.ServeHTTP(w, adapter.WithRoute(r, pattern))
		})
	}
}
