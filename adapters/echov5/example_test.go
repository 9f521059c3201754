package ratelimit_test

import (
	"fmt"
	"net/http"
	"net/http/httptest"

	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echov5"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func hello(c *echo.Context) error { return c.String(http.StatusOK, "hello\n") }

func Example() {
	e := echo.New()
	e.Use(ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "client", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(100)},
		ratelimit.Policy{Name: "users", Key: keyfunc.RemoteAddr, Limit: gcra.PerMinute(2), Routes: []string{"GET /users/:id"}},
	))
	e.GET("/hello", hello)
	e.GET("/users/:id", hello)

	for _, target := range []string{"/hello", "/users/1", "/users/2", "/users/3"} {
		w := httptest.NewRecorder()
		e.ServeHTTP(w, httptest.NewRequest("GET", target, nil))
		fmt.Println(target, w.Code, "remaining", w.Header().Get("RateLimit-Remaining"))
	}

	// Output:
	// /hello 200 remaining 99
	// /users/1 200 remaining 1
	// /users/2 200 remaining 0
	// /users/3 429 remaining 0
}

// Echo's KeyAuth checks the API key. Its validator leaves the owner in echo's
// context. Put the limiter after it.
func ExampleKeyFrom() {
	owners := map[string]string{"k-1": "acme", "k-2": "globex"}
	owner := ratelimit.KeyFrom(func(c *echo.Context) (string, error) { return echo.ContextGet[string](c, "owner") })

	e := echo.New()
	e.Use(
		echomiddleware.KeyAuth(func(c *echo.Context, key string, _ echomiddleware.ExtractorSource) (bool, error) {
			owner, ok := owners[key]
			c.Set("owner", owner)
			return ok, nil
		}),
		ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()}, ratelimit.Policy{Name: "owner", Key: owner, Limit: gcra.PerMinute(1)}),
	)
	e.GET("/hello", hello)

	for _, key := range []string{"k-1", "k-1", "k-2", "guess"} {
		r, w := httptest.NewRequest("GET", "/hello", nil), httptest.NewRecorder()
		r.Header.Set("Authorization", "Bearer "+key)
		e.ServeHTTP(w, r)
		fmt.Println(key, w.Code)
	}
	// Output:
	// k-1 200
	// k-1 429
	// k-2 200
	// guess 401
}
