package keyfunc

import (
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/diag"
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
// A request without a pattern is anonymous: one that no route
// matched, or one that has not reached the router yet. http.ServeMux sets the
// pattern before it calls the handler; the adapters of this module ask the
// router where it comes after the limiter. A limiter of adapters/nethttp around
// a router that it does not know, and one in echo's Pre, have no route at all:
// use the adapter of the router, or its Routes for a ServeMux. If none of
// a policy's first hundred requests has a pattern, the limiter logs it.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" {
		notice.Report(r.Context(), diag.RouteUnknown, "")
		return "", nil
	}
	return "route:" + r.Pattern, nil
}
