package keyfunc_test

import (
	"net/http"
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

// Every spelling of a path counts for its route or, if the router does not match it, for none.
func TestRouteVariants(t *testing.T) {
	var got string
	mux := http.NewServeMux()
	count := func(_ http.ResponseWriter, r *http.Request) { got = keyOf(t, keyfunc.Route, r) }
	mux.HandleFunc("GET /users/{id}", count)
	mux.HandleFunc("/files/{path...}", count)

	for _, tt := range []struct{ method, target, want string }{
		{"GET", "/users/7", "route:GET /users/{id}"},
		{"GET", "/users/8?x=1", "route:GET /users/{id}"},
		{"GET", "/users/%2e%2e", "route:GET /users/{id}"},
		{"GET", "/users/7%2f8", "route:GET /users/{id}"},
		{"GET", "/users/7;x", "route:GET /users/{id}"},
		{"GET", "/users/ü", "route:GET /users/{id}"},
		{"HEAD", "/users/7", "route:GET /users/{id}"},
		{"GET", "/files/a/b/c", "route:/files/{path...}"},
		{"MADEUP", "/files/a", "route:/files/{path...}"},
		{"MADEUP2", "/files/b", "route:/files/{path...}"},
		{"GET", "/USERS/7", ""},
		{"GET", "/users/7/", ""},
		{"MADEUP", "/users/7", ""},
	} {
		got = ""
		mux.ServeHTTP(httptest.NewRecorder(), httptest.NewRequest(tt.method, tt.target, nil))
		if got != tt.want {
			t.Errorf("%s %s: got %q; want %q", tt.method, tt.target, got, tt.want)
		}
	}
}
