package adapter

import (
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// NewRPC is [middleware.New] for a limiter of remote procedure calls: POST requests with the path
// "/package.Service/Method". A route "/package.Service/*" is all methods of a service. Its error also
// has the mistakes that such a limiter alone can have: a route that matches no call, such as "GET
// /login", a Deny and a BanStatus, which are for HTTP. Reload of the limiter does not look for them.
func NewRPC(cfg middleware.Config, policies ...middleware.Policy) (*middleware.Limiter, error) {
	var errs []error
	if cfg.Deny != nil {
		errs = append(errs, errors.New("ratelimit: Deny is set; want nil, as a denied call has a status and details in place of an HTTP response"))
	}
	if cfg.BanStatus != 0 {
		errs = append(errs, errors.New("ratelimit: BanStatus is set; want 0, as a denied call has a code in place of a status"))
	}

	for i, p := range policies {
		for n, route := range p.Routes {
			if parsed, err := pattern.Parse(route); err == nil && !parsed.Calls() { // New reports other mistakes
				wrong := fmt.Errorf(`is %.80q, which matches no call; want one such as "/package.Service/Method", or "/package.Service/*" for a service`, route)
				errs = append(errs, &middleware.FieldError{Index: i, Name: p.Name, Field: fmt.Sprintf("Routes[%d]", n), Err: wrong})
			}
		}
	}

	if len(errs) > 0 && !iface.IsNil(cfg.Store) {
		cfg.Store = unpublished{cfg.Store} // New looks for more mistakes, and may find none
	}
	l, err := middleware.New(cfg, policies...)
	if err = errors.Join(append(errs, err)...); err != nil {
		return nil, err
	}
	return l, nil
}

// unpublished is a store that shows operators no limiter.
type unpublished struct{ gcra.Store }

func (u unpublished) CheckLimit(l gcra.Limit) error {
	if s, ok := u.Store.(iface.LimitChecker); ok {
		return s.CheckLimit(l)
	}
	return nil
}

// Violation is a policy that denied a call, and why.
type Violation struct{ Policy, Why string }

// Denial returns what the client of a denied call hears: the code, as gRPC and Connect number it, a
// sentence, and the policies that denied. Shadows deny nothing, so clients do not learn of them.
func Denial(d *middleware.Decision) (code uint32, message string, violations []Violation) {
	code, message = 8, "The call was denied because a rate limit is used up." // RESOURCE_EXHAUSTED
	for i := range d.Results {
		switch p := &d.Results[i]; {
		case p.Allowed || p.Shadow:
		case p.Banned:
			message = "The call was denied because its client is banned."
			violations = append(violations, Violation{p.Policy, "the client is banned"})
		default:
			violations = append(violations, Violation{p.Policy, "rate limit is used up"})
		}
	}

	// What could not be decided was not used up, whatever other policies say.
	if d.Status() == http.StatusServiceUnavailable {
		code, message = 14, "The call was denied because the service cannot check its rate limits at the moment." // UNAVAILABLE
	}
	return code, message, violations
}
