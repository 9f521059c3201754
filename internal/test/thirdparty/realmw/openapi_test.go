package realmw

import (
	"context"
	"net/http"
	"net/http/httptest"
	"net/url"
	"testing"

	"github.com/danielgtaylor/huma/v2"
	"github.com/danielgtaylor/huma/v2/adapters/humago"
	"github.com/getkin/kin-openapi/openapi3"

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

// routesByID returns the routes of a specification by operation id.
func routesByID(t *testing.T) map[string]string {
	t.Helper()
	spec := &openapi3.T{OpenAPI: "3.0.0", Paths: openapi3.NewPaths()}
	for id, path := range operations {
		spec.AddOperation(path, http.MethodGet, &openapi3.Operation{OperationID: id})
	}
	routes := map[string]string{}
	for path, item := range spec.Paths.Map() {
		for method, op := range item.Operations() {
			routes[op.OperationID] = method + " " + path
		}
	}
	return routes
}

// Recipe "OpenAPI operations": the server that oapi-codegen generates is a ServeMux
// with the routes of the specification.
func TestServeMuxOperations(t *testing.T) {
	mux := http.NewServeMux()
	for _, path := range operations {
		mux.HandleFunc("GET "+path, func(http.ResponseWriter, *http.Request) {})
	}
	expectOnlyUsersLimited(t, onceFor(routesByID(t)["get-user"])(mux))
}

// finder is a server with a router of its own, and the methods of ogen's.
type finder struct{ mux *http.ServeMux }

type found struct{ pattern string }

func (f found) PathPattern() string { return f.pattern }

func (f finder) FindPath(method string, u *url.URL) (found, bool) {
	_, pattern := f.mux.Handler(&http.Request{Method: method, URL: u})
	return found{pattern}, pattern != ""
}

func (f finder) ServeHTTP(w http.ResponseWriter, r *http.Request) { f.mux.ServeHTTP(w, r) }

// Recipe "OpenAPI operations": ogen's server says which route it found.
func TestOwnRouterOperations(t *testing.T) {
	server := finder{http.NewServeMux()}
	for _, path := range operations {
		server.mux.HandleFunc(path, func(http.ResponseWriter, *http.Request) {})
	}
	limited := onceFor(routesByID(t)["get-user"])(server)
	expectOnlyUsersLimited(t, http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if route, ok := server.FindPath(r.Method, r.URL); ok {
			r.Pattern = r.Method + " " + route.PathPattern()
		}
		limited.ServeHTTP(w, r)
	}))
}
