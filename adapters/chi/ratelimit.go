// Package ratelimit limits requests in chi (v5).
//
//	router.Use(ratelimit.New(ratelimit.Config{Store: store},
//		ratelimit.Policy{Name: "burst", Key: keyfunc.RemoteAddr, Limit: gcra.PerSecond(10)},
//	))
//
// The middleware works in Use, With and Group, also of mounted routers, and around a
// router, with nothing between the two. Put middleware that rewrites the path, such as
// chi's StripSlashes, in front of it, so that limiter and router see the same path.
//
// Package middleware documents the fields of Config, Policy and Decision, and has their constants.
package ratelimit

import (
	"cmp"
	"context"
	"net/http"
	"strings"
	"sync"

	"github.com/go-chi/chi/v5"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/middleware"
	"github.com/seed-e377111c/ratelimit/middleware/adapter"
)

// The types that most programs need. Package middleware has the others.
type (
	Config   = middleware.Config
	Policy   = middleware.Policy
	Decision = middleware.Decision
)

// FromContext returns the Decision that a request carries, or nil. See [middleware.FromContext].
func FromContext(ctx context.Context) *Decision { return middleware.FromContext(ctx) }

// New returns middleware that limits requests by the policies. It panics if the
// configuration is not valid: [middleware.New] returns the error.
func New(cfg Config, policies ...Policy) func(http.Handler) http.Handler {
	return From(middleware.Must(middleware.New(cfg, policies...)))
}

// From returns middleware that limits requests by l. Policies and keyfunc.Route
// get the route in the form of a ServeMux, "GET /files/{path...}". What a ServeMux does
// not have stays, such as regular expressions: "GET /users/{id:[0-9]+}". The route is
// empty, or a mount, if the router has none for the request.
func From(l *middleware.Limiter) func(http.Handler) http.Handler {
	return through(adapter.GateOf(l))
}

// InFlight returns middleware that holds a slot of an *inflight.Gate while a handler runs:
//
//	router.Use(ratelimit.InFlight(running.Gate(inflight.Limit{Name: "exports", Key: user, Max: 3})))
//
// Limit.Routes and keyfunc.Route get the route as with [From]. It panics if err is not nil.
func InFlight(gate adapter.Gate, err error) func(http.Handler) http.Handler {
	return through(middleware.Must(gate, err))
}

// through returns middleware whose requests pass the gate, with their route.
func through(gate adapter.Gate) func(http.Handler) http.Handler {
	return func(next http.Handler) http.Handler {
		around, _ := next.(chi.Routes) // as in limit(router); nil in Use
		mounts := mounts{around: around}
		templates := pattern.Templates{Convert: muxPattern}
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			known := r.Pattern
			if rctx := chi.RouteContext(r.Context()); rctx != nil && rctx.Routes != nil {
				known = templates.Pattern(cmp.Or(rctx.RouteMethod, r.Method), mounts.find(rctx, r))
			} else if around != nil {
				known = templates.Pattern(r.Method, find(around, nil, r.Method, pathOf(r)))
			}

			if r, release, ok := gate.Allow(w, adapter.WithRoute(r, known)); ok {
				defer release()
				next.ServeHTTP(w, r)
			}
		})
	}
}

// muxPattern returns chi's pattern in the form of a ServeMux, with the method if it is standard.
func muxPattern(method, chiPattern string) string {
	name, open := strings.CutSuffix(chiPattern, "/*")
	if open {
		name += "/{path...}"
	} else if strings.HasSuffix(name, "/") { // in chi, that path alone
		name += "{$}"
	}
	return strings.TrimPrefix(method+" "+name, " ")
}

// mounts caches which router serves a mount, by the patterns that lead to it
// ("/admin/*"): nil for a mount that is not a chi router.
type mounts struct {
	around  chi.Routes // the router inside the limiter, as in r.Mount("/admin", limit(router)), or nil
	routers pattern.Cache[string, chi.Routes]
}

// find returns the pattern of the route that chi will find, or has found, for the
// request.
func (m *mounts) find(rctx *chi.Context, r *http.Request) string {
	router := m.router(rctx)
	if router == nil && strings.HasSuffix(rctx.RoutePatterns[len(rctx.RoutePatterns)-1], "*") && rctx.URLParam("*") == "" {
		router = m.around // it is mounted: chi has taken the rest of the path
	}
	if router == nil {
		return rctx.RoutePattern()
	}

	// chi has not found the route yet: it is looked up as chi will do it next.
	method, path := cmp.Or(rctx.RouteMethod, r.Method), rctx.RoutePath
	switch rest, inMount := rctx.URLParam("*"), len(rctx.RoutePatterns) > 0; {
	case inMount && rest != "": // in With(...).Mount, before the mounted router has its path
		path = "/" + rest
	case inMount && (path == "" || !strings.HasSuffix(rctx.RoutePatterns[len(rctx.RoutePatterns)-1], "*")):
		path = "/" // of a mount without its slash, where the path is still the outer router's
	case path == "":
		path = pathOf(r)
	}

	return find(router, rctx.RoutePatterns, method, path)
}

// router returns the router that chi will ask for the route next, or nil. In a router that is mounted at
// "/admin", in one that is mounted at "/{tenant}", RoutePatterns are "/{tenant}/*" and "/admin/*".
func (m *mounts) router(rctx *chi.Context) chi.Routes {
	if len(rctx.RoutePatterns) == 0 {
		return rctx.Routes
	}

	// Routers do not change while they serve, and a walk through their routes allocates.
	key := strings.Join(rctx.RoutePatterns, "")
	router, ok := m.routers.Get(key)
	if !ok {
		router = rctx.Routes
		for _, at := range rctx.RoutePatterns {
			if router = mounted(router, at); router == nil {
				break
			}
		}
		m.routers.Put(key, router)
	}
	return router
}

// mounted returns the router that is mounted in outer at a pattern, or nil. For a mount at "/admin" chi has the
// patterns "/admin", "/admin/" and "/admin/*".
func mounted(outer chi.Routes, at string) chi.Routes {
	for _, r := range outer.Routes() {
		if r.SubRoutes != nil && strings.TrimRight(r.Pattern, "/*") == strings.TrimRight(at, "/*") {
			return r.SubRoutes
		}
	}
	return nil
}

// contexts saves find six allocations a request.
var contexts = sync.Pool{New: func() any { return chi.NewRouteContext() }}

// find asks the router, which is mounted at the patterns, for the route.
func find(router chi.Routes, patterns []string, method, path string) string {
	rctx := contexts.Get().(*chi.Context)
	defer contexts.Put(rctx)
	// GetHead, behind the limiter, serves a HEAD by the route of GET.
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
	rctx.RoutePatterns = rctx.RoutePatterns[:len(patterns)] // without a route, the mount
	return rctx.RoutePattern()
}

// pathOf returns the path that chi routes by.
func pathOf(r *http.Request) string { return cmp.Or(r.URL.RawPath, r.URL.Path, "/") }
