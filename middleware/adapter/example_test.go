package adapter_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// Context is the context of some framework, which has found the route already.
type Context struct {
	Writer   http.ResponseWriter
	Request  *http.Request
	Template string // "/users/{id}"
	User     string
}

// From returns the framework's middleware.
func From(l *middleware.Limiter) func(c *Context, next func(*Context)) {
	return func(c *Context, next func(*Context)) {
		r := adapter.WithFramework(c.Request, c.Request.Method+" "+c.Template, c)
		r, ok := l.Allow(c.Writer, r)
		c.Request = r
		if ok {
			next(c)
		}
	}
}

// An adapter of a framework that this module does not have.
func Example() {
	user := adapter.KeyFrom(func(c *Context) (string, error) { return c.User, nil })
	limit := From(middleware.Must(middleware.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "user", Key: user, Limit: gcra.PerMinute(1), Routes: []string{"GET /users/{id}"}},
	)))

	for range 2 {
		w := httptest.NewRecorder()
		c := &Context{w, httptest.NewRequest(http.MethodGet, "/users/7", nil), "/users/{id}", "alice"}
		limit(c, func(c *Context) {
			d := middleware.FromContext(c.Request.Context())
			fmt.Fprintln(c.Writer, d.Results[0].Subject, "has", d.Results[0].Remaining, "left")
		})
		fmt.Println(w.Code, w.Header().Get("RateLimit-Reset"))
	}
	// Output:
	// 200 60
	// 429 60
}
