package realmw

import (
	"context"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"

	ratelimit "github.com/seed-e377111c/ratelimit/adapters/nethttp"
	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// onceFor allows one request to the routes.
func onceFor(routes ...string) func(http.Handler) http.Handler {
	return ratelimit.New(ratelimit.Config{Store: gcra.NewMemory()},
		ratelimit.Policy{Name: "once", Key: keyfunc.RemoteAddr, Limit: gcra.PerHour(1), Routes: routes})
}

// expectOnlyUsersLimited wants one of the requests for users to pass, and all others.
func expectOnlyUsersLimited(t *testing.T, h http.Handler) {
	t.Helper()
	for _, step := range []struct {
		target string
		want   int
	}{
		{"/users/1", 200}, {"/users/2", 429}, {"/users/1/posts", 200}, {"/users/2/posts", 200}, {"/other", 200}, {"/other", 200},
	} {
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest("GET", step.target, nil))
		if w.Code != step.want {
			t.Errorf("GET %s: got %d; want %d", step.target, w.Code, step.want)
		}
	}
}

// operations are the operation ids of the API, and their paths.
var operations = map[string]string{"get-user": "/users/{id}", "list-posts": "/users/{id}/posts", "other": "/other"}

// Recipe "OpenAPI operations": Huma.
func TestHumaOperations(t *testing.T) {
	mux, routes := http.NewServeMux(), map[string]string{}
	config := huma.DefaultConfig("API", "1.0.0")
	config.OnAddOperation = append(config.OnAddOperation, func(_ *huma.OpenAPI, op *huma.Operation) {
		routes[op.OperationID] = op.Method + " " + op.Path
	})
	api := humago.New(mux, config)
	type input struct {
		ID string `path:"id"`
	}

	for id, path := range operations {
		op := huma.Operation{OperationID: id, Method: http.MethodGet, Path: path, DefaultStatus: http.StatusOK}
		if id == "other" {
			huma.Register(api, op, func(context.Context, *struct{}) (*struct{}, error) { return nil, nil })
		} else {
			huma.Register(api, op, func(context.Context, *input) (*struct{}, error) { return nil, nil })
		}
	}

	expectOnlyUsersLimited(t, onceFor(routes["get-user"])(mux))
}
