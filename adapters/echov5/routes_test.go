package ratelimit_test

import (
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"
	echomiddleware "github.com/labstack/echo/v5/middleware"

	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
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

// inEchoV4 are the places of a limiter in echo v4. They return the group for the routes.
var inEchoV4 = map[string]func(e *echov4.Echo, limit *middleware.Limiter) *echov4.Group{
	"Use": func(e *echov4.Echo, l *middleware.Limiter) *echov4.Group {
		e.Use(viaechov4.From(l))
		return e.Group("")
	},
	"Pre": func(e *echov4.Echo, l *middleware.Limiter) *echov4.Group {
		e.Pre(viaechov4.From(l))
		return e.Group("")
	},
	"group": func(e *echov4.Echo, l *middleware.Limiter) *echov4.Group { return e.Group("", viaechov4.From(l)) },
	"Pre, with a router for the host": func(e *echov4.Echo, l *middleware.Limiter) *echov4.Group {
		e.Pre(viaechov4.From(l))
		e.GET("/users/other", func(echov4.Context) error { return nil })
		return e.Host("api.example")
	},
}

// inEcho are the places of a limiter in echo v5.
var inEcho = map[string]func(e *echo.Echo, limit *middleware.Limiter) *echo.Group{
	"Use":   func(e *echo.Echo, l *middleware.Limiter) *echo.Group { e.Use(viaecho.From(l)); return e.Group("") },
	"Pre":   func(e *echo.Echo, l *middleware.Limiter) *echo.Group { e.Pre(viaecho.From(l)); return e.Group("") },
	"group": func(e *echo.Echo, l *middleware.Limiter) *echo.Group { return e.Group("", viaecho.From(l)) },
	"Use, behind a middleware of net/http": func(e *echo.Echo, l *middleware.Limiter) *echo.Group {
		e.Use(echo.WrapMiddleware(func(next http.Handler) http.Handler { return next }), viaecho.From(l))
		return e.Group("")
	},
	viaWrap: func(e *echo.Echo, l *middleware.Limiter) *echo.Group {
		e.Use(echo.WrapMiddleware(vianethttp.From(l)))
		return e.Group("")
	},
}

// viaWrap is the adapter of net/http, for which echo v5 puts its path into r.Pattern.
const viaWrap = "Use, the adapter of net/http"

// echoRouters are the routers of echo v5.
var echoRouters = map[string]func() echo.Router{
	"default":    func() echo.Router { return echo.NewRouter(echo.RouterConfig{}) },
	"concurrent": func() echo.Router { return echo.NewConcurrentRouter(echo.NewRouter(echo.RouterConfig{})) },
	"escaped paths and automatic HEAD": func() echo.Router {
		return echo.NewRouter(echo.RouterConfig{UseEscapedPathForMatching: true, AutoHandleHEAD: true})
	},
}

// The limiter counts by the route that echo serves, wherever the limiter is mounted and however the
// path is spelled.
func TestEchoRoutes(t *testing.T) {
	paths := []string{
		"/", "/login", "/login/", "//login", "/LOGIN", "/%6cogin", "/login%2f", "/x/../login",
		"/users/7", "/users/me", "/users/m%65", "/users/7/", "/users//7", "/users/7/posts", "/users/a%2Fb", "/search/a", "/search/a/b/",
		"/de/help", "/%2F/help", "/files/", "/files/a", "/files/a/b", "/files/%61", "/files//",
		"/user_bob", "/user_bob/x", "/user%5Fbob", "/v1/things:batch", "/deep/1/2", "/deep/1/x/y/z", "/nowhere",
	}

	run := func(name string, build func(l *middleware.Limiter, serve func(path string)) http.Handler) {
		t.Run(name, func(t *testing.T) {
			served, counted := "", ""
			limiter := middleware.Must(middleware.New(middleware.Config{
				Store: gcra.NewMemory(), Observe: func(_ *http.Request, d *middleware.Decision) { counted = d.Results[0].Subject },
			}, middleware.Policy{Name: "by route", Key: keyfunc.Route, Limit: gcra.PerSecond(1_000_000)}))

			h, reached := build(limiter, func(path string) { served = path }), map[string]bool{}
			for _, method := range []string{"GET", "HEAD", "POST"} {
				for _, path := range paths {
					r := httptest.NewRequest(method, path, nil)
					r.Host = "api.example"
					served, counted = "", ""
					h.ServeHTTP(httptest.NewRecorder(), r)
					if served == "" {
						continue
					}

					reached[served] = true
					want := "route:" + pattern.FromTemplate(method, served)
					if strings.Contains(name, viaWrap) {
						want = "route:" + served
					}
					if counted != want {
						t.Errorf("%s %s was served by %s: counted as %q; want %q", method, path, served, counted, want)
					}
				}
			}

			if len(reached) != len(echoRoutes) {
				t.Errorf("%d routes were served; want %d", len(reached), len(echoRoutes))
			}
		})
	}

	methods := []string{"GET", "POST"}
	for where, mount := range inEchoV4 {
		run("v4, "+where, func(l *middleware.Limiter, serve func(string)) http.Handler {
			e := echov4.New()
			group := mount(e, l)
			for _, route := range echoRoutes {
				group.Match(methods, route, func(c echov4.Context) error { serve(c.Path()); return nil })
			}
			return e
		})
	}

	for kind, router := range echoRouters {
		for where, mount := range inEcho {
			run("v5, "+where+", router: "+kind, func(l *middleware.Limiter, serve func(string)) http.Handler {
				e := echo.NewWithConfig(echo.Config{Router: router()})
				group := mount(e, l)
				for _, route := range echoRoutes {
					group.Match(methods, route, func(c *echo.Context) error { serve(c.Path()); return nil })
				}
				return e
			})
		}
	}
}

// A client that rewrites the method after echo has found the route escapes no policy of the route.
func TestEchoMethodOverride(t *testing.T) {
	served := 0
	e := echo.New()
	e.Use(echomiddleware.MethodOverride(), viaecho.New(middleware.Config{Store: gcra.NewMemory()},
		middleware.Policy{Name: "login", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: []string{"POST /login"}}))
	e.POST("/login", func(*echo.Context) error { served++; return nil })
	for _, method := range []string{"", "GET", "DELETE", "BREW"} {
		r := httptest.NewRequest("POST", "/login", nil)
		r.Header.Set(echo.HeaderXHTTPMethodOverride, method)
		e.ServeHTTP(httptest.NewRecorder(), r)
	}
	if served != 1 {
		t.Errorf("got %d requests; want 1", served)
	}
}
