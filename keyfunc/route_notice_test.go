package keyfunc

import (
	"net/http"
	"net/http/httptest"
	"slices"
	"testing"

	"github.com/seed-e377111c/ratelimit/internal/notice"
)

// Only where no request has a route is the set-up wrong.
func TestRouteUnknown(t *testing.T) {
	defer routes.known.Store(true)
	ask := func(pattern string) (codes []string) {
		r := httptest.NewRequest("GET", "/", nil)
		r.Pattern = pattern
		Route(r.WithContext(notice.With(r.Context(), func(code, _ string) { codes = append(codes, code) })))
		return codes
	}
	for _, tt := range []struct {
		name  string
		known int // the request with a route, 0 for none
		want  []string
	}{
		{"none has a route", 0, []string{notice.RouteUnknown}},
		{"the first has one", 1, nil},
		{"the hundredth has one", 100, nil},
	} {
		routes.known.Store(false)
		routes.unrouted.Store(0)
		var got []string
		for i := range manyUnrouted {
			if i+1 == tt.known {
				got = append(got, ask("GET /")...)
			} else {
				got = append(got, ask("")...)
			}
		}
		if !slices.Equal(got, tt.want) {
			t.Errorf("%s: got reports %q in a hundred requests; want %q", tt.name, got, tt.want)
		}
	}

	// A route that comes late ends it.
	routes.known.Store(false)
	if got := ask(""); !slices.Equal(got, []string{notice.RouteUnknown}) {
		t.Errorf("got %q; want the report again while no request has a route", got)
	}
	ask("GET /")
	if got := ask(""); len(got) != 0 {
		t.Errorf("after a route: got %q; want no report", got)
	}
}

func BenchmarkRoute(b *testing.B) {
	r := &http.Request{Pattern: "GET /users/{id}"}
	b.ReportAllocs()
	for b.Loop() {
		Route(r)
	}
}
