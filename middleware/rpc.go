package middleware

import (
	"fmt"
	"net/http"
	"strings"
)

// checkCall returns nil for a route that matches remote procedure calls.
func checkCall(route string) error {
	if want := callRoute(route); want != "" {
		return fmt.Errorf("is %.80q, which matches no call; want %.80q", route, want)
	}
	return nil
}

// callRoute returns "" for a route that matches remote procedure calls, and otherwise
// the route that was probably meant.
func callRoute(route string) (want string) {
	fields := append([]string{""}, strings.Fields(route)...)
	method, path := fields[max(0, len(fields)-2)], fields[len(fields)-1]
	service, name, both := strings.Cut(strings.TrimPrefix(path, "/"), "/")

	switch {
	case service == "" && !both, strings.Contains(service, "*"):
		want = path
	case strings.Contains(name, "/"), strings.HasPrefix(service, "{"), strings.HasPrefix(service, ":"):
		want = "/package.Service/*"
	case !both, strings.HasPrefix(name, "{"), strings.HasPrefix(name, ":"): // a call has text there
		want = "/" + service + "/*"
	default:
		want = "/" + service + "/" + name
	}

	if path == want && (method == "" || method == http.MethodPost) {
		return ""
	}
	return want
}
