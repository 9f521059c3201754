package main

import (
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/keyfunc"
)

// routes are those of the application, for the key route: a log tells paths
// only. They are given with -route, or else the patterns of the policies stand
// for them.
type routes struct {
	mux   http.ServeMux
	count int
}

// registered is where a route comes from, for which the mux takes this file.
var muxLocation = regexp.MustCompile(`^http: | \(registered at [^)]*\)`)

// add adds a route, in the syntax of a ServeMux or that of gin and echo.
func (rs *routes) add(route string) (err error) {
	defer func() {
		if v := recover(); v != nil { // the mux knows best
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

// key counts the route that would serve the request, as keyfunc.Route does
// behind a ServeMux. A request without one is anonymous.
func (rs *routes) key(r *http.Request) (string, error) {
	if rs.count == 0 || r.Method == http.MethodConnect { // as adapters/nethttp has it
		return "", nil
	}
	_, r.Pattern = rs.mux.Handler(r)
	defer func() { r.Pattern = "" }()
	return keyfunc.Route(r)
}
