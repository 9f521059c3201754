package ratelimit

import (
	"net/http"

	"github.com/labstack/echo/v4"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// Gate lets a request pass while it holds a slot, or answers it: an *inflight.Gate.
type Gate interface {
	Allow(w http.ResponseWriter, r *http.Request) (_ *http.Request, release func(), ok bool)
}

// InFlight returns middleware that holds a slot while the handler runs:
//
//	e.Use(ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3})))
//
// Handlers find the slot with inflight.FromContext in c.Request().Context(). InFlight panics if err is not nil.
func InFlight(gate Gate, err error) echo.MiddlewareFunc {
	if err != nil {
		panic(err)
	}
	templates := pattern.Templates{Convert: pattern.FromTemplate}
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			// Key functions may read echo's Context, and limits go by its route.
			r := adapter.WithFramework(c.Request(), templates.Pattern(c.Request().Method, route(c)), c)
			r, release, ok := gate.Allow(response{c.Response()}, r)
			c.SetRequest(r)
			// The gate has answered already.
			if !ok {
				return nil
			}
			defer release()
			return next(c)
		}
	}
}
