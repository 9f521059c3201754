package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/internal/sitetest"
	"github.com/seed-e377111c/ratelimit/keyfunc"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// echoRoutes are routes that echo's router tells apart in ways of its own: it
// prefers text to parameters, a last parameter holds slashes, and a parameter may
// begin inside a segment.
var echoRoutes = []string{
	"/", "/login", "/login/", "/users/:id", "/users/me", "/users/:id/posts", "/search/:q", "/:lang/help",
	"/files/*", "/files/a", "/user_:name", "/v1/things\\:batch", "/deep/:a/:b", "/deep/:a/x/*",
}

// echoMounts mount a limiter in all places that both versions of echo have.
var echoMounts = map[string]func(limit *middleware.Limiter, served func(path string)) http.Handler{
	"v4, Use": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echov4.New()
		e.Use(viaechov4.From(limit))
		return routesOfV4(e, e.Group(""), served)
	},
	"v4, Pre": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echov4.New()
		e.Pre(viaechov4.From(limit))
		return routesOfV4(e, e.Group(""), served)
	},
	"v4, Pre, with a router for the host": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echov4.New()
		e.Pre(viaechov4.From(limit))
		e.GET("/users/other", func(echov4.Context) error { return nil })
		return routesOfV4(e, e.Host("api.example"), served)
	},
	"v4, group": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echov4.New()
		return routesOfV4(e, e.Group("", viaechov4.From(limit)), served)
	},
	"v4, route": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echov4.New()
		return routesOfV4(e, e.Group(""), served, viaechov4.From(limit))
	},
	"v5, Use": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.New()
		e.Use(viaecho.From(limit))
		return routesOf(e, e.Group(""), served)
	},
	"v5, Use, behind a middleware of net/http": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.New()
		e.Use(echo.WrapMiddleware(func(next http.Handler) http.Handler { return next }), viaecho.From(limit))
		return routesOf(e, e.Group(""), served)
	},
	"v5, Use, escaped paths and automatic HEAD": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{UseEscapedPathForMatching: true, AutoHandleHEAD: true})})
		e.Use(viaecho.From(limit))
		return routesOf(e, e.Group(""), served)
	},
	"v5, Pre": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.New()
		e.Pre(viaecho.From(limit))
		return routesOf(e, e.Group(""), served)
	},
	"v5, Pre, escaped paths and automatic HEAD": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{UseEscapedPathForMatching: true, AutoHandleHEAD: true})})
		e.Pre(viaecho.From(limit))
		return routesOf(e, e.Group(""), served)
	},
	"v5, Pre, a router of one's own": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewConcurrentRouter(echo.NewRouter(echo.RouterConfig{}))})
		e.Pre(viaecho.From(limit))
		return routesOf(e, e.Group(""), served)
	},
	"v5, Pre, virtual hosts": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.New()
		e.Pre(viaecho.From(limit))
		routesOf(e, e.Group(""), served)
		return echo.NewVirtualHostHandler(map[string]*echo.Echo{"api.example": e})
	},
	"v5, group": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.New()
		return routesOf(e, e.Group("", viaecho.From(limit)), served)
	},
	"v5, route": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.New()
		return routesOf(e, e.Group(""), served, viaecho.From(limit))
	},
	"v5, route, escaped paths and automatic HEAD": func(limit *middleware.Limiter, served func(string)) http.Handler {
		e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(echo.RouterConfig{UseEscapedPathForMatching: true, AutoHandleHEAD: true})})
		return routesOf(e, e.Group(""), served, viaecho.From(limit))
	},
}

func routesOfV4(e *echov4.Echo, g *echov4.Group, served func(string), m ...echov4.MiddlewareFunc) http.Handler {
	for _, route := range echoRoutes {
		g.Match([]string{"GET", "POST"}, route, func(c echov4.Context) error { served(c.Path()); return c.NoContent(http.StatusOK) }, m...)
	}
	return e
}

func routesOf(e *echo.Echo, g *echo.Group, served func(string), m ...echo.MiddlewareFunc) http.Handler {
	for _, route := range echoRoutes {
		g.Match([]string{"GET", "POST"}, route, func(c *echo.Context) error { served(c.Path()); return c.NoContent(http.StatusOK) }, m...)
	}
	return e
}

// The limiter counts by the route that echo serves, and policies apply to it,
// wherever the limiter is mounted and however the path is spelled.
func TestEchoRoutes(t *testing.T) {
	policies := []middleware.Policy{{Name: "by route", Key: keyfunc.Route, Limit: gcra.PerSecond(1_000_000)}}
	for _, route := range echoRoutes {
		route = strings.ReplaceAll(route, `\`, "")
		policies = append(policies, middleware.Policy{Name: "GET " + route, Key: sitetest.Everybody, Limit: gcra.PerSecond(1_000_000), Routes: []string{"GET " + route}})
	}
	paths := []string{
		"/", "/login", "/login/", "//login", "/LOGIN", "/%6cogin", "/login%2f", "/login/.", "/x/../login",
		"/users/7", "/users/me", "/users/m%65", "/users/7/", "/users//7", "/users/7/posts", "/users//posts", "/users/a%2Fb", "/users/a%2Fb/posts",
		"/search/a", "/search/a/b", "/search/a/b/c", "/search/a/", "/search/a/b/", "/search//a/b", "/search/a%2Fb/c", "/search/a/../b/c", "/search/%2e%2e/x",
		"/de/help", "/%2F/help", "//help", "/files/", "/files/a", "/files/a/b", "/files/%61", "/files/../login", "/files//",
		"/user_bob", "/user_bob/x", "/user_", "/user%5Fbob", "/v1/things:batch", "/v1/things:other",
		"/deep/1/2", "/deep/1/2/3", "/deep/1/x/y/z", "/deep/1/x/", "/deep//x/", "/nowhere",
	}
	for where, mount := range echoMounts {
		t.Run(where, func(t *testing.T) {
			served, last := "", middleware.Decision{}
			limiter := middleware.Must(middleware.New(middleware.Config{
				Store: gcra.NewMemory(), Observe: func(_ *http.Request, d middleware.Decision) { last = d },
			}, policies...))
			h, reached := mount(limiter, func(path string) { served = path }), map[string]bool{}
			for _, method := range []string{"GET", "HEAD", "POST"} {
				for _, path := range paths {
					r, err := http.NewRequest(method, path, nil)
					if err != nil {
						t.Fatal(err)
					}
					r.Host, r.RemoteAddr = "api.example", "192.0.2.7:1"
					served, last = "", middleware.Decision{}
					h.ServeHTTP(httptest.NewRecorder(), r)
					if served == "" {
						continue
					}
					reached[served] = true
					counted, applied := "", false
					for _, result := range last.Results {
						if result.Policy == "by route" {
							counted = result.Subject
						}
						applied = applied || result.Policy == "GET "+strings.ReplaceAll(served, `\`, "")
					}
					if want := "route:" + pattern.FromTemplate(method, served); counted != want || applied != (method != "POST") {
						t.Errorf("%s %s was served by %s: counted as %q, policy of the route applied: %t; want %q, %t", method, path, served, counted, applied, want, method != "POST")
					}
				}
			}
			expect(t, "routes that were served", len(reached), len(echoRoutes))
		})
	}
}

// A limiter around echo does not know its routes. One more segment for a last
// parameter does not escape a limit there either.
func TestEchoLastParameterAround(t *testing.T) {
	const burst = 2
	for where, around := range map[string]func(limit func(http.Handler) http.Handler, echo http.Handler) http.Handler{
		"echo": func(limit func(http.Handler) http.Handler, echo http.Handler) http.Handler { return limit(echo) },
		"a mux around echo": func(limit func(http.Handler) http.Handler, echo http.Handler) http.Handler {
			mux := http.NewServeMux()
			mux.Handle("/", echo)
			return limit(mux)
		},
	} {
		served := 0
		e := echo.New()
		e.GET("/search/:q", func(c *echo.Context) error { served++; return c.NoContent(http.StatusOK) })
		server := httptest.NewServer(around(vianethttp.New(middleware.Config{Store: gcra.NewMemory()},
			middleware.Policy{Name: "search", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(burst), Routes: []string{"GET /search/:q"}}), e))
		defer server.Close()
		for _, path := range []string{"/search/a", "/search/a/b", "/search/a/b/c", "/search/a/", "/search/a/b/", "/search//a/b", "/search/a%2Fb/c", "/search/a/../b/c"} {
			r, err := http.NewRequest("GET", server.URL+path, nil)
			if err != nil {
				t.Fatal(err)
			}
			resp, err := http.DefaultTransport.RoundTrip(r)
			if err != nil {
				t.Fatal(err)
			}
			resp.Body.Close()
		}
		expect(t, "around "+where+": requests served by GET /search/:q", served, burst)
	}
}
