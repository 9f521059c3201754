package policyfile

import (
	"net/http"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// methods are the nine of RFC 9110 and RFC 5789.
var methods = []string{
	http.MethodGet, http.MethodHead, http.MethodPost, http.MethodPut, http.MethodPatch, http.MethodDelete,
	http.MethodConnect, http.MethodOptions, http.MethodTrace,
}

// checkRoute finds slips of the pen that make another pattern: a slash too few
// makes a host, and a letter too many a method, of requests that never come.
// What is no pattern at all is left to the middleware.
func (r *reader) checkRoute(at place, route string) {
	p, err := pattern.Parse(route)
	if err != nil {
		return
	}
	if name, ok := misspelt(p.Method()); ok {
		r.mistakes.addf(at, "route is %s: method %s is unknown (did you mean %s?)", quoted(route), quoted(p.Method()), name)
		return
	}
	host := p.Host()
	if host == "" || strings.ContainsAny(host, ".:") || strings.EqualFold(host, "localhost") {
		return
	}
	path := route[strings.IndexByte(route, '/'):]
	want := "/" + host + path
	if p.Method() != "" {
		want = p.Method() + " " + want
	} else if name, ok := misspelt(host); ok {
		want = name + " " + path
	} else if isMethod(host) {
		want = strings.ToUpper(host) + " " + path
	}
	r.mistakes.addf(at, "route is %s: %s would be a host, which has a dot or a port; want %s", quoted(route), quoted(host), quoted(want))
}

func isMethod(s string) bool {
	return slices.ContainsFunc(methods, func(method string) bool { return strings.EqualFold(method, s) })
}

// misspelt is the standard method that s was meant to be. One letter in three
// may be wrong: more, and LIST would be POST.
func misspelt(s string) (method string, ok bool) {
	if isMethod(s) {
		return "", false // in whatever case, as requests match it
	}
	method, ok = closest(methods, s)
	return method, ok && 3*distance(strings.ToUpper(s), method) <= len(method)
}
