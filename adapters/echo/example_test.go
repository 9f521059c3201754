package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// get sends requests from one client and prints what comes back.
func get(h http.Handler, targets ...string) {
	for _, target := range targets {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(target, w.Code, "remaining", w.Header().Get("RateLimit-Remaining"))
	}
}

func hello(c echo.Context) error { return c.String(http.StatusOK, "hello\n") }

func Example() {
	e := echo.New()
	e.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "users", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"GET /users/:id"}},
	))
	e.GET("/hello", hello)
	e.GET("/users/:id", hello)
	get(e, "/hello", "/users/1", "/users/2", "/users/3")
	// Output:
	// /hello 200 remaining 99
	// /users/1 200 remaining 1
	// /users/2 200 remaining 0
	// /users/3 429 remaining 0
}

// Authentication middleware leaves the user in echo's context. Put the limiter after it.
func ExampleKeyFrom() {
	authenticate := func(next echo.HandlerFunc) echo.HandlerFunc {
		return func(c echo.Context) error { c.Set("user", c.QueryParam("as")); return next(c) }
	}
	user := ratelimit.KeyFrom(func(c echo.Context) (string, error) { name, _ := c.Get("user").(string); return name, nil })
	e := echo.New()
	e.Use(authenticate,
		ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "user", Key: user, Limit: gcra.PerMinute(1)}))
	e.GET("/hello", hello)
	get(e, "/hello?as=alice", "/hello?as=alice", "/hello?as=bob")
	// Output:
	// /hello?as=alice 200 remaining 0
	// /hello?as=alice 429 remaining 0
	// /hello?as=bob 200 remaining 0
}
