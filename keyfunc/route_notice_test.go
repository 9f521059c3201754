package keyfunc_test

import (
	"net/http"
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

func BenchmarkRoute(b *testing.B) {
	r := &http.Request{Pattern: "GET /users/{id}"}
	b.ReportAllocs()
	for b.Loop() {
		_, _ = keyfunc.Route(r)
	}
}
