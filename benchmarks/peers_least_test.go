package main

import (
	"context"
	"net/http"
	"sync"

	"github.com/gin-gonic/gin"
	"github.com/labstack/echo/v4"
	echov5 "github.com/labstack/echo/v5"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// step does what a limiter does in a request: it returns the request for the handlers, or
// writes a denial and returns false.
type step func(http.ResponseWriter, *http.Request) (*http.Request, bool)

// steps are the least that whole middleware can do, by name.
func steps(l limit) map[string]step {
	return map[string]step{fieldsOnly: writeFields, least: takeOne(l), leastCopied: thenCopy(takeOne(l))}
}

var sharedValue = []string{"1"}

// writeFields sets the four fields of draft 6, the least: no number becomes text.
func writeFields(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
	h := w.Header()
	h["Ratelimit-Limit"] = sharedValue
	h["Ratelimit-Remaining"] = sharedValue
	h["Ratelimit-Reset"] = sharedValue
	h["Ratelimit-Policy"] = sharedValue
	return r, true
}

// takeOne takes from the client's bucket and sets the fields.
func takeOne(l limit) step {
	store := gcra.NewMemory()
	limit := gcra.Limit{Count: l.count, Per: l.per, Burst: l.burst}
	charges := sync.Pool{New: func() any { return new([1]gcra.Charge) }}
	return func(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
		c := charges.Get().(*[1]gcra.Charge)
		c[0] = gcra.Charge{Subject: clientOf(r), Policy: "client", Limit: limit, Cost: 1}
		allowed, err := store.Take(r.Context(), c[:])
		charges.Put(c)
		if err != nil || !allowed {
			w.WriteHeader(http.StatusTooManyRequests)
			return r, false
		}
		return writeFields(w, r)
	}
}

// thenCopy copies the request with a context of its own, in one allocation.
func thenCopy(do step) step {
	return func(w http.ResponseWriter, r *http.Request) (*http.Request, bool) {
		r, ok := do(w, r)
		return copied(r), ok
	}
}

// copied is a function of its own, or the compiler does not inline WithContext and there
// are two allocations.
func copied(r *http.Request) *http.Request {
	c := &withCopy{Context: r.Context()}
	c.request = *r.WithContext(c)
	return &c.request
}

type withCopy struct {
	context.Context
	request http.Request
}

// The steps in each framework, with nothing around them.

func netHTTPStep(do step) wrapper {
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			if r, ok := do(w, r); ok {
				next.ServeHTTP(w, r)
			}
		})
	}
}

func ginStep(do step) gin.HandlerFunc {
	return func(c *gin.Context) {
		var ok bool
		if c.Request, ok = do(c.Writer, c.Request); !ok {
			c.Abort()
		}
	}
}

func echoStep(do step) echo.MiddlewareFunc {
	return func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error {
			r, ok := do(c.Response(), c.Request())
			if !ok {
				return nil
			}
			c.SetRequest(r)
			return next(c)
		}
	}
}

func echoV5Step(do step) echov5.MiddlewareFunc {
	return func(next echov5.HandlerFunc) echov5.HandlerFunc {
		return func(c *echov5.Context) error {
			r, ok := do(c.Response(), c.Request())
			if !ok {
				return nil
			}
			c.SetRequest(r)
			return next(c)
		}
	}
}
