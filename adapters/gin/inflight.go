package ratelimit

import (
	"net/http"

	"github.com/gin-gonic/gin"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// Gate lets a request pass while it holds a slot, or answers it: an *inflight.Gate.
type Gate interface {
	Allow(w http.ResponseWriter, r *http.Request) (_ *http.Request, release func(), ok bool)
}

// InFlight returns middleware that holds a slot while the handlers after it run:
//
//	router.Use(ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3})))
//
// Handlers find the slot with inflight.FromContext in c.Request.Context(). InFlight panics if err is not nil.
func InFlight(gate Gate, err error) gin.HandlerFunc {
	if err != nil {
		panic(err)
	}
	templates := pattern.Templates{Convert: pattern.FromTemplate}
	return func(c *gin.Context) {
		r, release, ok := gate.Allow(c.Writer, adapter.WithFramework(c.Request, templates.Pattern(c.Request.Method, c.FullPath()), c))
		c.Request = r
		if !ok {
			c.Abort()
			return
		}
		defer release()
		c.Next()
	}
}
