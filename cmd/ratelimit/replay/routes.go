package replay

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// routes are the application's routes, for the key route: logs have only paths. They come
// from -route, or else from the policies.
type routes struct {
	mux   http.ServeMux
	count int
}

// muxLocation matches the mux's note of where a route was registered, which is always this
// file.
var muxLocation = regexp.MustCompile(`^http: | \(registered at [^)]*\)`)

// add adds a route, in the syntax of a ServeMux or that of gin and echo.
func (rs *routes) add(route string) (err error) {
	defer func() {
		if v := recover(); v != nil { // the mux panics on an invalid pattern
			err = errors.New(muxLocation.ReplaceAllString(fmt.Sprint(v), ""))
		}
	}()
	if strings.Contains(route, "/:") || strings.Contains(route, "/*") {
		method, template, ok := strings.Cut(route, " ")
		if !ok {
			method, template = "", route
		}
		route = pattern.FromTemplate(method, template)
	}
	rs.mux.Handle(route, http.NotFoundHandler())
	rs.count++
	return nil
}

// key keys by the route that would serve the request, as keyfunc.Route does behind a
// ServeMux. Requests without a route are anonymous.
func (rs *routes) key(r *http.Request) (string, error) {
	if rs.count == 0 || r.Method == http.MethodConnect { // as in adapters/nethttp
		return "", nil
	}
	_, r.Pattern = rs.mux.Handler(r)
	defer func() { r.Pattern = "" }()
	return keyfunc.Route(r)
}
