package sitetest

import (
	"net/http"
	"strings"

	"github.com/gin-gonic/gin"
	"github.com/go-chi/chi/v5"
	echov4 "github.com/labstack/echo/v4"
	"github.com/labstack/echo/v5"

	viachi "github.com/seed-e377111c/ratelimit/adapters/chi"
	viaechov4 "github.com/seed-e377111c/ratelimit/adapters/echo"
	viaecho "github.com/seed-e377111c/ratelimit/adapters/echov5"
	viagin "github.com/seed-e377111c/ratelimit/adapters/gin"
	vianethttp "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Framework is a name and a function that builds an app.
type Framework struct {
	Name  string
	Build func(App) http.Handler
}

// Frameworks are all frameworks and the ways to use them. A new one is a line and a
// function.
var Frameworks = []Framework{
	{"net/http around the mux", BuildMux},
	{"net/http around something around the mux", buildWrappedMux},
	{"net/http on handlers", buildHandlers},
	{"chi", func(a App) http.Handler { return buildChi(a, viachi.From) }},
	{"chi with net/http's adapter", func(a App) http.Handler { return buildChi(a, vianethttp.From) }},
	{"gin", buildGin},
	{"echo v4", func(a App) http.Handler { return buildEchoV4(a, (*echov4.Echo).Use) }},
	{"echo v4 in Pre", func(a App) http.Handler { return buildEchoV4(a, (*echov4.Echo).Pre) }},
	{"echo v5", func(a App) http.Handler { return buildEcho(a, echo.RouterConfig{}, (*echo.Echo).Use) }},
	{"echo v5 in Pre", func(a App) http.Handler { return buildEcho(a, echo.RouterConfig{}, (*echo.Echo).Pre) }},
	{"echo v5 with other router settings", func(a App) http.Handler {
		return buildEcho(a, echo.RouterConfig{UseEscapedPathForMatching: true, UnescapePathParamValues: true, AutoHandleHEAD: true}, (*echo.Echo).Use)
	}},
	{"echo v5 with other router settings in Pre", func(a App) http.Handler {
		return buildEcho(a, echo.RouterConfig{UseEscapedPathForMatching: true, UnescapePathParamValues: true, AutoHandleHEAD: true}, (*echo.Echo).Pre)
	}},
}

// App describes a server: a limiter on all of it, another one on the routes under
// /inner/, a middleware behind the first limiter, and routes in the syntax of a
// ServeMux.
type App struct {
	Outer, Inner *middleware.Limiter
	Behind       func()
	Routes       map[string]http.HandlerFunc
}

func isInner(pattern string) bool { return strings.Contains(pattern, "/inner/") }

func (a App) around(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { a.Behind(); next.ServeHTTP(w, r) })
}

func (a App) mux(wrap func(http.Handler) http.Handler) *http.ServeMux {
	mux := http.NewServeMux()
	for pattern, h := range a.Routes {
		var handler http.Handler = h
		if isInner(pattern) {
			handler = vianethttp.From(a.Inner)(handler)
		}
		mux.Handle(pattern, wrap(a.around(handler)))
	}
	return mux
}

func bare(h http.Handler) http.Handler { return h }

// BuildMux builds a server of net/http.
func BuildMux(a App) http.Handler { return vianethttp.From(a.Outer)(a.mux(bare)) }

func buildWrappedMux(a App) http.Handler {
	mux := a.mux(bare)
	return vianethttp.Routes(mux)(vianethttp.From(a.Outer)(http.HandlerFunc(mux.ServeHTTP)))
}

func buildHandlers(a App) http.Handler { return a.mux(vianethttp.From(a.Outer)) }

func buildChi(a App, from func(*middleware.Limiter) func(http.Handler) http.Handler) http.Handler {
	router := chi.NewRouter()
	router.Use(from(a.Outer), a.around)
	for pattern, h := range a.Routes {
		method, path, _ := strings.Cut(pattern, " ")
		if strings.HasSuffix(path, "/{path...}") {
			path = strings.TrimSuffix(path, "{path...}") + "*"
		}
		if isInner(pattern) {
			router.With(from(a.Inner)).Method(method, path, h)
		} else {
			router.Method(method, path, h)
		}
	}
	return router
}

// template returns the pattern of a ServeMux as a method and a route of gin and
// echo.
func template(pattern string) (method, path string) {
	method, path, _ = strings.Cut(pattern, " ")
	path = strings.ReplaceAll(path, "/{path...}", "/*path")
	return method, strings.NewReplacer("/{", "/:", "}", "").Replace(path)
}

func buildGin(a App) http.Handler {
	gin.SetMode(gin.ReleaseMode)
	router := gin.New()
	router.Use(viagin.From(a.Outer), func(*gin.Context) { a.Behind() })
	inner := router.Group("", viagin.From(a.Inner))
	for pattern, h := range a.Routes {
		method, path := template(pattern)
		if isInner(pattern) {
			inner.Handle(method, path, gin.WrapF(h))
		} else {
			router.Handle(method, path, gin.WrapF(h))
		}
	}
	return router
}

func buildEchoV4(a App, use func(*echov4.Echo, ...echov4.MiddlewareFunc)) http.Handler {
	e := echov4.New()
	use(e, viaechov4.From(a.Outer), echov4.WrapMiddleware(a.around))
	for pattern, h := range a.Routes {
		method, path := template(pattern)
		if isInner(pattern) {
			e.Add(method, path, echov4.WrapHandler(h), viaechov4.From(a.Inner))
		} else {
			e.Add(method, path, echov4.WrapHandler(h))
		}
	}
	return e
}

func buildEcho(a App, router echo.RouterConfig, use func(*echo.Echo, ...echo.MiddlewareFunc)) http.Handler {
	e := echo.NewWithConfig(echo.Config{Router: echo.NewRouter(router)})
	use(e, viaecho.From(a.Outer), echo.WrapMiddleware(a.around))
	inner := e.Group("/inner", viaecho.From(a.Inner))
	for pattern, h := range a.Routes {
		method, path := template(pattern)
		path = strings.ReplaceAll(path, "/*path", "/*") // the name is always "*"
		if isInner(pattern) {
			inner.Add(method, strings.TrimPrefix(path, "/inner"), echo.WrapHandler(h))
		} else {
			e.Add(method, path, echo.WrapHandler(h))
		}
	}
	return e
}
