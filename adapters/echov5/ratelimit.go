// Package ratelimit limits requests in echo (v5).
//
//	e.Use(ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//	))
//
// The middleware may be used in Use, in Pre, on a group or on a route. Put middleware that
// rewrites the path or the method in Pre, in front of the limiter, so that limiter and
// router see the same request.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
//
// Take addresses from package keyfunc: c.RealIP may believe what clients write.
package ratelimit

import (
	"cmp"
	"context"
	"net/http"
	"strings"

	"github.com/labstack/echo/v5"

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
// the Decision with [FromContext] in c.Request().Context(). Policies and
// keyfunc.Route get the route of echo's own router in the form of a ServeMux,
// "GET /users/{id}". A denial is a response, and not an error for echo's HTTPErrorHandler; see [DenyFrom].
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
		return func(c *echo.Context) error {
			r := adapter.WithFramework(c.Request(), templates.Pattern(method(c), route(c)), c)
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

// method returns the method of the route that echo has found, or else the request's, which
// MethodOverride may have changed since.
func method(c *echo.Context) string {
	return cmp.Or(pattern.Standard(c.RouteInfo().Method), c.Request().Method)
}

// route returns the path of the route that serves the request, or "" if it is not
// known.
func route(c *echo.Context) string {
	if path := pathOf(c); path != "" || c.Echo() == nil {
		return path
	}
	// In Pre, or a request without a route.
	r := c.Request()
	defer func(known string) { r.Pattern = known }(r.Pattern) // Route changes it
	asking := c.Echo().AcquireContext()
	defer c.Echo().ReleaseContext(asking)
	asking.Reset(r, c.Response())
	c.Echo().Router().Route(asking)
	return pathOf(asking)
}

// pathOf returns c.Path(), or "" if it has parameters in a syntax of a router that is
// not echo's. Policies then go by the path of the request.
func pathOf(c *echo.Context) string {
	path := c.Path()
	if len(c.PathValues()) > 0 && !strings.Contains(path, ":") && !strings.Contains(path, "*") {
		return ""
	}
	return path
}

// KeyFrom returns a Policy.Key that reads echo's context. The key gets the prefix "own:"; an
// empty key stays empty, which means anonymous. A request that carries no echo context is an
// error. Put the limiter after the authentication that the key needs.
func KeyFrom(key func(*echo.Context) (string, error)) func(*http.Request) (string, error) {
	return adapter.KeyFrom(key)
}

// DenyFrom returns a [Config].Deny that writes the denial with echo's context. An error that deny
// returns is written by echo's HTTPErrorHandler, as errors of handlers are:
//
//	Deny: ratelimit.DenyFrom(func(c *echo.Context, d *ratelimit.Decision) error {
//		return echo.NewHTTPError(d.Status(), "too many requests")
//	}),
func DenyFrom(deny func(*echo.Context, *Decision) error) func(http.ResponseWriter, *http.Request, *Decision) {
	return adapter.DenyFrom(func(c *echo.Context, d *Decision) bool {
		if err := deny(c, d); err != nil {
			c.Echo().HTTPErrorHandler(c, err)
		}
		own, ok := c.Response().(*echo.Response)
		return !ok || own.Committed // another writer may buffer
	})
}
