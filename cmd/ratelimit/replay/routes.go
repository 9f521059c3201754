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

// routes are the application's routes: logs have only paths. Routes from --route decide which
// policies apply, too. Without --route the key route uses the policies' routes, which then
// apply by path.
type routes struct {
	mux   http.ServeMux
	count int
}

// muxLocation matches the mux's note of where a route was registered, which is always this
// file.
var muxLocation = regexp.MustCompile(`^http: | \(registered at [^)]*\)`)

// add adds a route, in the syntax of a ServeMux, gin or echo.
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

// of is the pattern of the route that would serve the request, as adapters/nethttp knows it
// behind a ServeMux, or "".
func (rs *routes) of(r *http.Request) string {
	if rs.count == 0 || r.Method == http.MethodConnect {
		return ""
	}
	_, pattern := rs.mux.Handler(r)
	return pattern
}

// key keys by that route, as keyfunc.Route does. Requests without a route are anonymous.
func (rs *routes) key(r *http.Request) (string, error) {
	defer func(pattern string) { r.Pattern = pattern }(r.Pattern)
	r.Pattern = rs.of(r)
	return keyfunc.Route(r)
}
