// Package ratelimit limits requests in gin.
//
//	router.Use(ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//	))
//
// The middleware may be used on the engine, on a group or on a route. Put middleware that
// rewrites the path or the method around the engine, so that limiter and router see the same
// request.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
//
// Take addresses from package keyfunc: c.ClientIP may believe what clients write.
package ratelimit

import (
	"context"
	"net/http"

	"github.com/gin-gonic/gin"

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
func New(cfg Config, policies ...Policy) gin.HandlerFunc {
	return From(middleware.Must(middleware.New(cfg, policies...)))
}

// From returns middleware that limits requests by l. The handlers after it find
// the Decision with [FromContext] in c.Request.Context(), and the route, in the
// form of a ServeMux, in c.Request.Pattern: "GET /users/{id}".
func From(l *middleware.Limiter) gin.HandlerFunc {
	return through(adapter.GateOf(l))
}

// InFlight returns middleware that holds a slot of an *inflight.Gate while the handlers after it run:
//
//	router.Use(ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3})))
//
// Handlers find the slot with inflight.FromContext in c.Request.Context(). InFlight panics if err is not nil.
func InFlight(gate adapter.Gate, err error) gin.HandlerFunc {
	return through(middleware.Must(gate, err))
}

// through returns middleware whose requests pass the gate. Key functions may read gin's Context, and
// policies go by its route.
func through(gate adapter.Gate) gin.HandlerFunc {
	templates := pattern.Templates{Convert: pattern.FromTemplate}
	return func(c *gin.Context) {
		r := adapter.WithFramework(c.Request, templates.Pattern(c.Request.Method, c.FullPath()), c)
		r, release, ok := gate.Allow(c.Writer, r)
		c.Request = r
		if !ok {
			c.Abort()
			return
		}
		defer release()
		c.Next()
	}
}

// KeyFrom returns a Policy.Key that reads gin's context. The key gets the prefix "own:"; an
// empty key stays empty, which means anonymous. A request that carries no gin context is an
// error. Put the limiter after the authentication that the key needs.
func KeyFrom(key func(*gin.Context) (string, error)) func(*http.Request) (string, error) {
	return adapter.KeyFrom(key)
}

// DenyFrom returns a [Config].Deny that writes the denial with gin's context. Where middleware
// writes all errors, leave it the error and the status:
//
//	Deny: ratelimit.DenyFrom(func(c *gin.Context, d *ratelimit.Decision) {
//		c.Status(d.Status())
//		c.Error(errTooManyRequests)
//	}),
func DenyFrom(deny func(*gin.Context, *Decision)) func(http.ResponseWriter, *http.Request, *Decision) {
	return adapter.DenyFrom(func(c *gin.Context, d *Decision) bool {
		// gin sends the status at the end, and where there is no route it is 404 already.
		before := c.Writer.Status()
		deny(c, d)
		return c.Writer.Written() || c.Writer.Status() != before
	})
}
