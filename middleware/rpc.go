package middleware

import (
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// NewRPC is [New] for a limiter whose requests are remote procedure calls, as of gRPC
// and Connect: POST requests with the path "/package.Service/Method". A route
// "/package.Service/*" is all methods of a service. Routes that match no call are
// errors, also in [Limiter.Reload], and so is a Config.Deny, which writes a response
// of HTTP.
func NewRPC(cfg Config, policies ...Policy) (*Limiter, error) {
	l, err := New(cfg, policies...)
	errs := append(checkRPC(policies), err)
	if cfg.Deny != nil {
		errs = append(errs, errors.New("ratelimit: Deny is set; want nil, as a denied call has a status and details in place of an HTTP response"))
	}
	if err := errors.Join(errs...); err != nil {
		return nil, err
	}
	l.rpc = true
	return l, nil
}

// CheckRPC logs what [NewRPC] returns as an error, for a limiter of [New]: policies
// whose Routes match no remote procedure call, and Config.Deny. The adapters of gRPC
// and Connect call it. A limiter may serve HTTP too, so it only logs.
func (l *Limiter) CheckRPC() {
	if l.rpc {
		return
	}
	for _, p := range l.Policies() {
		if errs := checkRPC([]Policy{p}); len(errs) > 0 && len(errs) == len(p.Routes) {
			l.log.Report(diag.NotForRPC, p.Name, "a policy limits no call of gRPC or Connect, as none of its Routes matches one: make the limiter with middleware.NewRPC",
				"policy", p.Name, "error", errs[0].Error())
		}
	}
	if l.deny != nil {
		l.log.Report(diag.NotForRPC, "Config.Deny", "Config.Deny is not called for calls of gRPC or Connect: make the limiter with middleware.NewRPC")
	}
}

// checkRPC returns an error for each route that matches no remote procedure call.
func checkRPC(policies []Policy) (errs []error) {
	for i := range policies {
		for j, route := range policies[i].Routes {
			if want := callRoute(route); want != "" {
				errs = append(errs, &FieldError{Index: i, Name: policies[i].Name, Field: fmt.Sprintf("Routes[%d]", j),
					Err: fmt.Errorf("is %.80q, which matches no call; want %.80q", route, want)})
			}
		}
	}
	return errs
}

// callRoute returns "" for a route that matches remote procedure calls, and otherwise
// the route that was probably meant.
func callRoute(route string) (want string) {
	fields := append([]string{""}, strings.Fields(route)...)
	method, path := fields[max(0, len(fields)-2)], fields[len(fields)-1]
	service, name, both := strings.Cut(strings.TrimPrefix(path, "/"), "/")
	switch {
	case service == "" && !both, strings.HasPrefix(service, "*"), strings.HasPrefix(service, "{"):
		want = path
	case !both:
		want = "/" + service + "/*"
	case strings.Contains(name, "/"):
		want = "/package.Service/*"
	default:
		want = "/" + service + "/" + name
	}
	if path == want && (method == "" || method == http.MethodPost) {
		return ""
	}
	return want
}
