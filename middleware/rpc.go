package middleware

import (
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// checkCalls logs what New returns as an error for a Config with RPC, for a limiter
// without: policies none of whose Routes match a call, and Config.Deny. The limiter may
// serve HTTP too, so it only logs.
func (l *Limiter) checkCalls() {
	for _, p := range l.policies.Load().list {
		var err error
		for _, route := range p.Routes {
			if err = checkCall(route); err == nil {
				break
			}
		}
		if err != nil {
			l.log.Report(diag.NotForRPC, p.Name, "a policy limits no call of gRPC or Connect, as none of its Routes matches one: set Config.RPC",
				"policy", p.Name, "error", err.Error())
		}
	}
	if l.cfg.Deny != nil {
		l.log.Report(diag.NotForRPC, "Config.Deny", "Config.Deny is not called for calls of gRPC or Connect: set Config.RPC")
	}
}

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
