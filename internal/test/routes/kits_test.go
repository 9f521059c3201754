package routes

import (
	"fmt"
	"net/http"
	"net/url"
	"os"
	"strings"
	"testing"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/internal/test/diagtest"
	"github.com/seed-e377111c/ratelimit/middleware"
)

func TestMain(m *testing.M) {
	gin.SetMode(gin.ReleaseMode)
	os.Exit(diagtest.Quiet(m).Run())
}

// served gets the route that serves a request, and its parameters.
type served func(route int, param func(name string) string)

// kit builds the router of a framework, behind a limiter.
type kit struct {
	name    string
	syntax  syntax
	unknown bool // the limiter does not know the route
	raw     bool // the router reads URL.RawPath where there is one
	build   func(l *middleware.Limiter, routes []route, serve served) http.Handler
}

// syntax is how a framework writes what a ServeMux calls {name} and {rest...}.
type syntax struct {
	param, rest string
	inside      bool // a parameter may be a part of a segment
	star        bool // so may "*" be
}

var (
	muxSyntax  = syntax{param: "{%s}", rest: "{rest...}"}
	chiSyntax  = syntax{param: "{%s}", rest: "*", inside: true, star: true}
	ginSyntax  = syntax{param: ":%s", rest: "*rest", inside: true}
	echoSyntax = syntax{param: ":%s", rest: "*", inside: true, star: true}
)

// route is a route as its framework writes it.
type route struct{ method, path string }

var kits = []kit{
	{name: "net/http around the mux", syntax: muxSyntax, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return vianethttp.From(l)(mux(routes, serve, func(h http.Handler) http.Handler { return h }))
	}},
	{name: "net/http on handlers", syntax: muxSyntax, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return mux(routes, serve, vianethttp.From(l))
	}},
	{name: "chi", syntax: chiSyntax, raw: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		r := chi.NewRouter()
		r.Use(viachi.From(l))
		return chiRoutes(r, routes, serve)
	}},
	{name: "chi, regular expressions", syntax: syntax{param: "{%s:[^/]+}", rest: "*", star: true}, raw: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return viachi.From(l)(chiRoutes(chi.NewRouter(), routes, serve))
	}},
	{name: "chi, a subrouter", syntax: chiSyntax, raw: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		r := chi.NewRouter()
		r.Use(viachi.From(l))
		r.Mount("/", chiRoutes(chi.NewRouter(), routes, serve))
		return r
	}},
	{name: "chi with net/http's adapter", syntax: chiSyntax, raw: true, unknown: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		r := chi.NewRouter()
		r.Use(vianethttp.From(l))
		return chiRoutes(r, routes, serve)
	}},
	{name: "gin", syntax: ginSyntax, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return ginRoutes(gin.New(), l, routes, serve)
	}},
	{name: "gin, escaped paths and redirects", syntax: ginSyntax, raw: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		e := gin.New()
		e.UseRawPath, e.UnescapePathValues, e.RedirectFixedPath, e.HandleMethodNotAllowed = true, false, true, true
		return ginRoutes(e, l, routes, serve)
	}},
	{name: "echo v4", syntax: echoSyntax, raw: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return echoV4((*echov4.Echo).Use, l, routes, serve)
	}},
	{name: "echo v4, Pre", syntax: echoSyntax, raw: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return echoV4((*echov4.Echo).Pre, l, routes, serve)
	}},
	{name: "echo v5", syntax: echoSyntax, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return echoV5(echo.RouterConfig{}, routes, serve, func(e *echo.Echo) { e.Use(viaecho.From(l)) })
	}},
	{name: "echo v5, Pre, escaped paths, automatic HEAD", syntax: echoSyntax, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return echoV5(echo.RouterConfig{UseEscapedPathForMatching: true, AutoHandleHEAD: true}, routes, serve, func(e *echo.Echo) { e.Pre(viaecho.From(l)) })
	}},
	{name: "net/http around echo v5", syntax: echoSyntax, unknown: true, build: func(l *middleware.Limiter, routes []route, serve served) http.Handler {
		return vianethttp.From(l)(echoV5(echo.RouterConfig{}, routes, serve, func(*echo.Echo) {}))
	}},
}

func mux(routes []route, serve served, wrap func(http.Handler) http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for i, route := range routes {
		mux.Handle(strings.TrimSpace(route.method+" "+route.path), wrap(http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) { serve(i, r.PathValue) })))
	}
	return mux
}

func chiRoutes(router chi.Router, routes []route, serve served) chi.Router {
	for i, route := range routes {
		router.Method(route.method, route.path, http.HandlerFunc(func(_ http.ResponseWriter, r *http.Request) {
			serve(i, func(name string) string { return chi.URLParam(r, strings.Replace(name, "rest", "*", 1)) })
		}))
	}
	return router
}

func ginRoutes(e *gin.Engine, l *middleware.Limiter, routes []route, serve served) http.Handler {
	routed := false
	e.Use(func(*gin.Context) { routed = true }, viagin.From(l))
	for i, route := range routes {
		e.Handle(route.method, route.path, func(c *gin.Context) { serve(i, c.Param) })
	}
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		routed = false
		defer func() {
			if v := recover(); v != nil && routed { // gin 1.12 panics on some requests before they have a route
				panic(v)
			}
		}()
		e.ServeHTTP(w, r)
	})
}

func echoV4(use func(*echov4.Echo, ...echov4.MiddlewareFunc), l *middleware.Limiter, routes []route, serve served) http.Handler {
	e := echov4.New()
	use(e, viaechov4.From(l))
	for i, route := range routes {
		e.Add(route.method, route.path, func(c echov4.Context) error {
			serve(i, func(name string) string { return c.Param(strings.Replace(name, "rest", "*", 1)) })
			return nil
		})
	}
	return e
}

func echoV5(router echo.RouterConfig, routes []route, serve served, use func(*echo.Echo)) http.Handler {
	e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(router)})
	use(e)
	for i, route := range routes {
		e.Add(route.method, route.path, func(c *echo.Context) error {
			serve(i, func(name string) string { return c.Param(strings.Replace(name, "rest", "*", 1)) })
			return nil
		})
	}
	return e
}

// tryBuild builds the router, or returns nil where the framework panics because two routes conflict.
func (k *kit) tryBuild(l *middleware.Limiter, routes []route, serve served) (h http.Handler) {
	defer func() {
		if recover() != nil {
			h = nil
		}
	}()
	return k.build(l, routes, serve)
}

// value returns a parameter as the framework's user reads it: decoded.
func (k *kit) value(u *url.URL, s string) string {
	if k.raw && u.RawPath != "" {
		if decoded, err := url.PathUnescape(s); err == nil {
			return decoded
		}
	}
	return s
}

// The routes of a limiter's policies and the framework's, in a message.
func show(k kit, routes []route, policies []middleware.Policy) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s, routes %q, policies", k.name, routes)
	for _, p := range policies {
		fmt.Fprintf(&b, " %q", p.Routes[0])
	}
	return b.String()
}
