package keyfunc_test

import (
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// A request without a route, or with the mount of a router of chi, is reported. The limiter decides whether that is a problem.
func TestRouteUnknown(t *testing.T) {
	for pattern, want := range map[string][]diag.Code{"": {diag.RouteUnknown}, "GET /": nil, "/admin/*": {diag.RouteUnknown}, "GET /files/{path...}": nil} {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = pattern
		if _, got := reports(t, keyfunc.Route, r); !slices.Equal(got, want) {
			t.Errorf("pattern %q: got reports %q; want %q", pattern, got, want)
		}
	}
}
