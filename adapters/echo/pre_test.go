package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/labstack/echo/v4"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/echo"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// In echo, the last parameter of a route matches all that is left of the path,
// slashes included. Additional segments do not escape a limit on the route,
// wherever the limiter is mounted.
func TestLastParameterHoldsSegments(t *testing.T) {
	const burst = 2
	for where, build := range map[string]func(*echo.Echo, ratelimit.Config, ratelimit.Policy) http.Handler{
		"Use": func(e *echo.Echo, cfg ratelimit.Config, p ratelimit.Policy) http.Handler {
			e.Use(ratelimit.New(cfg, p))
			return e
		},
		"Pre": func(e *echo.Echo, cfg ratelimit.Config, p ratelimit.Policy) http.Handler {
			e.Pre(ratelimit.New(cfg, p))
			return e
		},
		"net/http around echo": func(e *echo.Echo, cfg ratelimit.Config, p ratelimit.Policy) http.Handler {
			return vianethttp.New(cfg, p)(e)
		},
		"net/http around a mux around echo": func(e *echo.Echo, cfg ratelimit.Config, p ratelimit.Policy) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/", e)
			return vianethttp.New(cfg, p)(mux)
		},
	} {
		t.Run(where, func(t *testing.T) {
			served := 0
			e := echo.New()
			h := build(e, ratelimit.Config{Store: gcra.NewMemory()},
				ratelimit.Policy{Name: "search", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(burst), Routes: []string{"GET /search/:q"}})
			e.GET("/search/:q", func(c echo.Context) error { served++; return c.NoContent(http.StatusOK) })
			server := httptest.NewServer(h)
			defer server.Close()
			for _, path := range []string{"/search/a", "/search/a/b", "/search/a/b/c", "/search/a/", "/search/a/b/", "/search//a/b", "/search/a%2Fb/c", "/search/a/../b/c"} {
				r, err := http.NewRequest("GET", server.URL+path, nil)
				if err != nil {
					t.Fatal(err)
				}
				for range 2 {
					resp, err := http.DefaultTransport.RoundTrip(r)
					if err != nil {
						t.Fatal(err)
					}
					resp.Body.Close()
				}
			}
			if served != burst {
				t.Errorf("got %d requests served by GET /search/:q; want %d", served, burst)
			}
		})
	}
}
