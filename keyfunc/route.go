package keyfunc

import (
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// Route counts by the route that matched the request, r.Pattern: "route:GET /users/{id}". With
// [Join] each client has a bucket for each route:
//
//	keyfunc.Join(keyfunc.RemoteAddr, keyfunc.Route)
//
// A pattern without a method is one bucket for all methods; where another router than a ServeMux has
// a route for all methods, each standard method has a bucket, HEAD as GET, and all others have one.
//
// A request without a pattern is anonymous: no route matched, or the limiter does not know the
// router. Use the router's adapter, or Routes of adapters/nethttp for a ServeMux.
func Route(r *http.Request) (string, error) {
	if r.Pattern == "" || strings.HasSuffix(r.Pattern, "/*") {
		notice.Report(r.Context(), diag.RouteUnknown, "")
	}
	if r.Pattern == "" {
		return "", nil
	}
	return "route:" + r.Pattern, nil
}
