package keyfunc_test

import (
	"net/http/httptest"
	"testing"

	"github.com/seed-e377111c/ratelimit/keyfunc"
)

func TestRoute(t *testing.T) {
	for pattern, want := range map[string]string{
		"GET /users/{id}":           "route:GET /users/{id}",
		"/users/{id}":               "route:/users/{id}",
		"api.example.com/{path...}": "route:api.example.com/{path...}",
		"":                          "",
	} {
		r := httptest.NewRequest("GET", "/users/7", nil)
		r.Pattern = pattern
		if got := keyOf(t, keyfunc.Route, r); got != want {
			t.Errorf("pattern %q: got %q; want %q", pattern, got, want)
		}
	}
}
