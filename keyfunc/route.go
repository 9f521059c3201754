package keyfunc

import (
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// Route counts by the route that matched the request, r.Pattern:
// "route:GET /users/{id}". The paths that the router takes to one route share a bucket.
// A pattern without a method is one bucket for all methods. The adapters of other routers
// than a ServeMux put a standard method into the pattern: there a route for all methods has
// a bucket for each of these, HEAD as GET, and one for all others.
//
// Alone, it gives a route one bucket for all clients. With [Join] each client has one
// for each route:
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route)
//
// A request without a pattern is anonymous: no route matched, it has not reached the
// router, or the router sets no pattern. http.ServeMux sets it before it calls the handler;
// for routers behind the limiter, the adapters of this module ask the router. A limiter of
// adapters/nethttp does not see the routes of an unknown router in it: use the adapter of the
// router, or Routes of adapters/nethttp for a ServeMux. In Use of a router that is mounted
// in another one of chi, such a limiter gets the pattern of the mount, such as "/admin/*".
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" || strings.HasSuffix(r.Pattern, "/*") {
		notice.Report(r.Context(), diag.RouteUnknown, "")
	}
	if r.Pattern == "" {
		return "", nil
	}
	return "route:" + r.Pattern, nil
}
