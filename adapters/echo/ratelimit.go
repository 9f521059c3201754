// Package ratelimit limits requests in echo (v4).
//
//	e.Use(ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//	))
//
// The middleware may be used in Use, in Pre, on a group or on a route. Put middleware that
// rewrites the path or the method in Pre, in front of the limiter, so that limiter and
// router see the same request.
//
// For echo v5 use adapters/echov5.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
//
// Take addresses from package keyfunc: c.RealIP may believe what clients write.
package ratelimit

import (
	"context"
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
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
func New(cfg Config, policies ...Policy) echo.MiddlewareFunc {
	return From(middleware.Must(middleware.New(cfg, policies...)))
}

// From returns middleware that limits requests by l. The handlers after it find
// the Decision with [FromContext] in c.Request().Context(), and the route, in
// the form of a ServeMux, in c.Request().Pattern: "GET /users/{id}". A denial
// is a response, and not an error for echo's HTTPErrorHandler; see [DenyFrom].
func From(l *middleware.Limiter) echo.MiddlewareFunc {
	return through(adapter.GateOf(l))
}

// InFlight returns middleware that holds a slot of an *inflight.Gate while the handler runs:
//
//	e.Use(ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3})))
//
// Handlers find the slot with inflight.FromContext in c.Request().Context(). InFlight panics if err is not nil.
func InFlight(gate adapter.Gate, err error) echo.MiddlewareFunc {
	return through(middleware.Must(gate, err))
}

// through returns middleware whose requests pass the gate. Key functions may read echo's Context, and
// policies go by its route.
func through(gate adapter.Gate) echo.MiddlewareFunc {
	templates := pattern.Templates{Convert: pattern.FromTemplate}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r := adapter.WithFramework(c.Request(), templates.Pattern(c.Request().Method, route(c)), c)
			r, release, ok := gate.Allow(c.Response(), r)
			c.SetRequest(r)
			if !ok {
				return nil // it is answered
			}
			defer release()
			return next(c)
		}
	}
}

// route returns the path of the route that serves the request, or "" if there is
// none.
func route(c echo.Context) string {
	if path := c.Path(); path != "" {
		return path
	}
	// In Pre, or a request without a route.
	e, r := c.Echo(), c.Request()
	asking := e.AcquireContext()
	defer e.ReleaseContext(asking)
	asking.Reset(r, c.Response())
	router, ok := e.Routers()[r.Host]
	if !ok {
		router = e.Router()
	}
	router.Find(r.Method, echo.GetPath(r), asking)
	return asking.Path()
}

// KeyFrom returns a Policy.Key that reads echo's context. The key gets the prefix "own:"; an
// empty key stays empty, which means anonymous. A request that carries no echo context is an
// error. Put the limiter after the authentication that the key needs.
func KeyFrom(key func(echo.Context) (string, error)) func(*http.Request) (string, error) {
	return adapter.KeyFrom(key)
}

// DenyFrom returns a [Config].Deny that writes the denial with echo's context. An error that deny
// returns is written by echo's HTTPErrorHandler, as errors of handlers are:
//
//	Deny: ratelimit.DenyFrom(func(c echo.Context, d *ratelimit.Decision) error {
//		return echo.NewHTTPError(d.Status(), "too many requests")
//	}),
func DenyFrom(deny func(echo.Context, *Decision) error) func(http.ResponseWriter, *http.Request, *Decision) {
	return adapter.DenyFrom(func(c echo.Context, d *Decision) bool {
		if err := deny(c, d); err != nil {
			c.Error(err)
		}
		return c.Response().Committed
	})
}
