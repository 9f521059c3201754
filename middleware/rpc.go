package middleware

import (
	"fmt"
	"regexp"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
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

// calls are the routes that match remote procedure calls: all of them ("/", "/*", "/*path", "/{rest...}"),
// those of services ("/pkg.*"), of one service, or one of its methods, which is text in each call.
var calls = regexp.MustCompile(`^(POST[ \t]+)?/([^/]*\*[^/]*|{[^/]*\.\.\.}|[^/{:][^/]*/({[^/]*\.\.\.}|[^/{:][^/]*(/(\*|{[^/]*\.\.\.})?)?)?)?$`)

// checkCall returns nil for a route that matches remote procedure calls.
func checkCall(route string) error {
	if _, err := pattern.Parse(route); err != nil || !calls.MatchString(route) {
		return fmt.Errorf(`is %.80q, which matches no call; want one such as "/package.Service/Method", or "/package.Service/*" for a service`, route)
	}
	return nil
}
