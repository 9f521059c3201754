// Package ratelimit limits requests in chi (v5).
//
//	router.Use(ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//	))
//
// The middleware may be used in Use, With and Group, of mounted routers too, and
// around a router. chi looks for the route after the middleware of Use has run,
// so this package asks the router for it. Policy.Routes and keyfunc.Route need
// the route, and adapters/nethttp does not know it.
//
// Fields are documented in package middleware; this package repeats its names.
//
// Put middleware that rewrites the path (chi's StripSlashes and CleanPath) in
// front of the limiter, so that both see the same path.
package ratelimit

import (
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// New returns middleware that limits requests by the policies. It panics if the
// configuration is not valid, with an error that names every mistake. To handle
// the error, use [middleware.New] and [From].
func New(cfg Config, policies ...Policy) func(http.Handler) http.Handler {
	return From(middleware.Must(middleware.New(cfg, policies...)))
}

// From returns middleware that limits requests by l. Policies and keyfunc.Route
// get the route in the form of a ServeMux, "GET /files/{path...}", except that
// regular expressions stay: "GET /users/{id:[0-9]+}". It is empty if the router
// has no route for the request.
func From(l *Limiter) func(http.Handler) http.Handler {
	if l == nil {
		panic("ratelimit.From: the Limiter is nil; want one from middleware.New")
	}
	return func(next http.Handler) http.Handler {
		around, _ := next.(chi.Routes) // as in limit(router); nil in Use
		var mounts mounts
		var names pattern.Cache[[2]string, string]
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r = middleware.WithFramework(r, nil)
			if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil {
				r.Pattern = named(&names, r.Method, mounts.route(rctx, r))
			} else if around != nil {
				r.Pattern = named(&names, r.Method, find(around, nil, r.Method, pathOf(r)))
			}
			if r, ok := l.Allow(w, r); ok {
				next.ServeHTTP(w, r)
			}
		})
	}
}

// named returns chi's pattern in the form of a ServeMux, with the method.
func named(names *pattern.Cache[[2]string, string], method, chis string) string {
	if chis == "" {
		return ""
	}
	key := [2]string{pattern.Standard(method), chis}
	name, ok := names.Get(key)
	if !ok {
		switch before, open := strings.CutSuffix(chis, "/*"); {
		case open:
			name = before + "/{path...}"
		case strings.HasSuffix(chis, "/"): // in chi, that path alone
			name = chis + "{$}"
		default:
			name = chis
		}
		if key[0] != "" {
			name = key[0] + " " + name
		}
		names.Put(key, name)
	}
	return name
}

// mounts caches which router serves a mount, by the patterns that lead to it
// ("/admin/*"): nil for a mount that is not a chi router.
type mounts struct {
	routers pattern.Cache[string, chi.Routes]
}

// route returns the pattern of the route that chi will find, or has found, for
// the request.
func (m *mounts) route(rctx *chi.Context, r *http.Request) string {
	router := m.router(rctx)
	if router == nil {
		return rctx.RoutePattern()
	}
	method, path := rctx.RouteMethod, rctx.RoutePath
	if method == "" {
		method = r.Method
	}
	switch rest, mounted := rctx.URLParam("*"), len(rctx.RoutePatterns) > 0; {
	case mounted && rest != "": // in With(...).Mount, before the mounted router has its path
		path = "/" + rest
	case mounted && (path == "" || !strings.HasSuffix(rctx.RoutePatterns[len(rctx.RoutePatterns)-1], "*")):
		path = "/" // of a mount without its slash, where the path is still the outer router's
	case path == "":
		path = pathOf(r)
	}
	return find(router, rctx.RoutePatterns, method, path)
}

// router returns the router that looks for the route next, nil if none does.
func (m *mounts) router(rctx *chi.Context) chi.Routes {
	if len(rctx.RoutePatterns) == 0 {
		return rctx.Routes
	}
	key := strings.Join(rctx.RoutePatterns, "")
	router, ok := m.routers.Get(key)
	if !ok {
		router = rctx.Routes
		for _, pattern := range rctx.RoutePatterns {
			if router = mounted(router, pattern); router == nil {
				break
			}
		}
		m.routers.Put(key, router)
	}
	return router
}

// mounted returns the router that is mounted in outer at the pattern, or nil.
func mounted(outer chi.Routes, pattern string) chi.Routes {
	for _, route := range outer.Routes() {
		if route.SubRoutes != nil && base(route.Pattern) == base(pattern) {
			return route.SubRoutes
		}
	}
	return nil
}

// base returns the common part of the three patterns of a mount: "/admin",
// "/admin/" and "/admin/*".
func base(pattern string) string {
	return strings.TrimSuffix(strings.TrimSuffix(pattern, "*"), "/")
}

// contexts are for find: six allocations less for each request.
var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// find asks the router, which is mounted at the patterns, for the route. For HEAD
// it also tries GET, as chi's GetHead may do behind the limiter.
func find(router chi.Routes, patterns []string, method, path string) string {
	rctx := contexts.Get().(*chi.Context)
	defer contexts.Put(rctx)
	for _, method := range [...]string{method, http.MethodGet} {
		rctx.Reset()
		rctx.RoutePatterns = append(rctx.RoutePatterns, patterns...)
		if router.Match(rctx, method, path) {
			return rctx.RoutePattern()
		}
		if method != http.MethodHead {
			break
		}
	}
	rctx.RoutePatterns = rctx.RoutePatterns[:len(patterns)]
	return rctx.RoutePattern()
}

// pathOf returns the path that chi routes by.
func pathOf(r *http.Request) string {
	switch {
	case r.URL.RawPath != "":
		return r.URL.RawPath
	case r.URL.Path != "":
		return r.URL.Path
	}
	return "/"
}
