package keyfunc

import (
	"net/http"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// Route counts the route that the request was matched with, as r.Pattern has
// it: "route:GET /users/{id}". All paths that lead to one handler are one
// bucket, however they are spelled (//, /./, %2e, other values of {id}), and a
// client cannot have a fresh one by inventing a path. For the same reason a
// pattern without a method is one bucket for all methods, made-up ones included.
//
// Alone, it is one bucket a route for all clients together. With [Join] it is
// one for each client and route:
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route)
//
// A request without a pattern is nobody in particular: one that no route
// matched, or one that has not reached the router yet. http.ServeMux sets the
// pattern before it calls the handler; the adapters of this module ask the
// router where it comes after the limiter. A limiter of adapters/nethttp around
// a router that it does not know, and one in echo's Pre, have no route at all:
// use the adapter of the router, or its Routes for a ServeMux. If the first
// hundred requests of a process have no pattern, the limiter logs it.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		routes.missing(r)
		return "", nil
	}
	routes.found()
	return "route:" + r.Pattern, nil
}

// routes is what Route has seen in this process.
var routes routeCheck

// manyUnrouted is how many requests without a route are more than a client that
// looks for pages which do not exist.
const manyUnrouted = 100

// routeCheck notices when no request has a route. Requests without one are
// usual, so a single route is enough to say that all is well.
type routeCheck struct {
	known    atomic.Bool
	unrouted atomic.Int64
}

func (c *routeCheck) found() {
	if !c.known.Load() {
		c.known.Store(true)
	}
}

func (c *routeCheck) missing(r *http.Request) {
	if !c.known.Load() && c.unrouted.Add(1) >= manyUnrouted {
		notice.Report(r.Context(), notice.RouteUnknown, "keyfunc.Route: no request has had a route yet, so all of them count as one; use the adapter of your router (adapters/chi in chi's Use), or around a ServeMux ratelimit.Routes(mux)")
	}
}
