package middleware

import (
	"fmt"
	"net/http"
	"net/url"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// policies are the compiled policies of a limiter, and which of them apply to
// which route.
type policies struct {
	list    []*policy
	limiter *Limiter
	routed  bool // some have Routes
	byRoute pattern.Cache[route, []match]
}

// names are the names of the policies.
func (ps *policies) names() []string {
	names := make([]string, len(ps.list))
	for i, p := range ps.list {
		names[i] = p.Name
	}
	return names
}

// named returns the policy with a name, or an error with the names that there are.
func (ps *policies) named(name string) (*policy, error) {
	for _, p := range ps.list {
		if p.Name == name {
			return p, nil
		}
	}
	return nil, fmt.Errorf("policy is %.80q; want one of %s", name, strings.Join(ps.names(), ", "))
}

// route is what the server knows of a request's route. There is a bounded number:
// clients choose neither the patterns nor the standard methods.
type route struct{ pattern, method string }

// match is whether a policy applies to the requests of a route: always, or to
// those that pass one of the checks.
type match struct {
	always bool
	checks []check
}

// check compares the request itself with a pattern of the policy.
type check struct {
	*pattern.Pattern
	anyPath bool             // only the host is compared
	greedy  bool             // another router may follow, in which a last parameter matches several segments
	outside *pattern.Pattern // only paths that this route does not have are compared
}

// match returns a match for each policy, or nil if no policy has Routes.
//
// The route that will serve the request decides, if it is known: all spellings of a
// path lead to it. If it is unknown, or a client fills in what a policy's pattern
// has as text, the path is compared.
func (ps *policies) match(r *http.Request) []match {
	if !ps.routed {
		return nil
	}
	key := route{r.Pattern, r.Method}
	matches, ok := ps.byRoute.Get(key)
	if ok {
		return matches
	}

	known, below := pattern.FromRouter(r.Pattern), stripped(r)
	matches = make([]match, len(ps.list))
	for i, p := range ps.list {
		matches[i] = p.match(known, r, below != nil)
		if below != nil {
			p.checkStripped(known, below, r)
		}
	}

	if pattern.Standard(r.Method) != "" { // clients can invent others
		ps.byRoute.Put(key, matches)
	}
	return matches
}

// stripped returns the pattern of all paths that begin as the request's did before
// [http.StripPrefix], or nil if the path is as the client sent it.
func stripped(r *http.Request) *pattern.Pattern {
	sent, err := url.ParseRequestURI(r.RequestURI)
	if err != nil {
		return nil
	}
	prefix, ok := strings.CutSuffix(sent.Path, r.URL.Path)
	if prefix = strings.TrimSuffix(prefix, "/"); !ok || prefix == "" {
		return nil
	}
	return pattern.FromRouter((&url.URL{Path: prefix + "/"}).EscapedPath())
}

// checkStripped logs if all Routes of the policy name paths below a prefix that was removed, so
// that none applies to the route.
func (p *policy) checkStripped(route, below *pattern.Pattern, r *http.Request) {
	full := ""
	for i, own := range p.routes {
		switch {
		case !own.MatchMethod(r.Method):
		case below.On(own) != pattern.Always, own.On(route) == pattern.Always:
			return // it may name what is left, or applies by the route
		default:
			full = p.Routes[i]
		}
	}

	if full != "" {
		p.limiter.log.Report(diag.RouteStripped, p.Name, "a policy does not apply to a route, as http.StripPrefix has removed the beginning of the path that its Routes name: mount the limiter outside of it, or name the path that is left",
			"policy", p.Name, "pattern", full, "path", r.URL.Path, "route", r.Pattern)
	}
}

// match compares the policy's patterns with the route. stripped says whether the path is without its beginning.
func (p *policy) match(route *pattern.Pattern, r *http.Request, stripped bool) (m match) {
	m.always = len(p.routes) == 0
	var apart string
	var rest []check
	for i, own := range p.routes {
		// The methods differ if middleware has rewritten the request's after the router found the route.
		if !own.MatchMethod(r.Method) && !own.MatchMethodOf(route) {
			continue
		}

		switch own.On(route) {
		case pattern.Always:
			m.always = m.always || own.SameHost(route)
			m.checks = append(m.checks, check{Pattern: own, anyPath: true})
		case pattern.ByPath:
			m.checks = append(m.checks, check{Pattern: own, greedy: route.Open()})
		case pattern.Never:
			// What http.StripPrefix leaves of the path may be the pattern's.
			if stripped {
				rest = append(rest, check{Pattern: own, outside: route})
			}
		case pattern.Apart:
			// Behind http.StripPrefix the path is not below the route, and may be the pattern's.
			if route.Mount() {
				rest = append(rest, check{Pattern: own, greedy: true, outside: route})
			}
			if !route.Mount() || route.MatchURL(r.URL, false) {
				apart = p.Routes[i]
			}
		}
	}

	if apart != "" && !m.always && len(m.checks) == 0 {
		p.limiter.log.Report(diag.RouteApart, p.Name, "a policy does not apply to a route, which has text where the policy has a parameter: add the route to the policy's Routes if it should",
			"policy", p.Name, "pattern", apart, "route", r.Pattern)
	}

	m.checks = append(m.checks, rest...)
	return m
}

// applies reports whether the policy applies to a request of the route.
func (m *match) applies(r *http.Request) bool {
	if m.always {
		return true
	}
	for _, c := range m.checks {
		if c.outside != nil && c.outside.MatchURL(r.URL, false) {
			continue
		}
		if c.MatchHost(r.Host) && (c.anyPath || c.MatchURL(r.URL, c.greedy)) {
			return true
		}
	}
	return false
}
