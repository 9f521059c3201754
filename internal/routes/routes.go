// Package routes says which policies apply to the route of a request.
package routes

// Package pattern compares a pattern with a route or a path. Here is what follows from that for the policies of a limiter.

import (
	"net/http"
	"net/url"
	"strings"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// Table has the routes of policies, and which of them apply to which route. Its zero value has none.
type Table struct {
	Log *diag.Log // gets what policies leave out that they may be meant for

	policies []policy
	routed   bool // some have routes
	byRoute  pattern.Cache[route, *routing]
}

type policy struct {
	name     string
	routes   []string // none means every request
	patterns []*pattern.Pattern
}

// Add adds a policy, whose index is the number of those before it. It returns an error for each of its routes, nil for one
// that is valid.
func (t *Table) Add(name string, routes []string) (mistakes []error) {
	p := policy{name: name, routes: routes}
	for _, text := range routes {
		parsed, err := pattern.Parse(text)
		p.patterns, mistakes = append(p.patterns, parsed), append(mistakes, err)
	}
	t.policies = append(t.policies, p)
	t.routed = t.routed || len(routes) > 0
	return mistakes
}

// route is what the server knows of a request's route. There is a bounded number:
// clients choose neither the patterns nor the standard methods.
type route struct{ pattern, method string }

// routing says how each policy applies to the requests of a route. It depends on nothing but the
// route, so it is cached; the request is compared each time.
//
// A policy applies by the route that will serve the request, if it is known: all spellings of a path
// lead to it. If it is unknown, or a client fills in what a policy's pattern has as text, the path is
// compared. Where the path is not below the route, as [http.StripPrefix] or a mount has removed its
// beginning, a policy applies by the route or by the path that is left.
type routing struct {
	route   *pattern.Pattern
	matches []match     // of each policy
	gaps    atomic.Bool // there are gaps that are not logged yet
}

// match is how a policy applies to the requests of a route.
type match struct {
	always bool    // to all
	checks []check // or else to those that pass one of them
	gap    *gap    // nil if there is nothing to log
}

// check compares the request itself with a pattern of the policy.
type check struct {
	*pattern.Pattern
	outside bool // only where the path is not below the route
	anyPath bool // only the host is compared
	greedy  bool // another router may follow, in which a last parameter matches several segments
}

// gap is why a policy does not apply to requests that it may be meant for.
type gap struct {
	pattern string // of the policy
	text    string
}

const (
	apart       = "a policy does not apply to a route, which has text where the policy has a parameter: add the route to the policy's Routes if it should"
	someMethods = "a policy limits some methods of a route that takes every method: list the route without a method if it should limit them all"
)

// Matching compares one request with the policies' routes.
type Matching struct {
	*routing // nil if no policy has Routes
	r        *http.Request
	isBelow  bool // the path is below the route; known if asked
	asked    bool
}

// Match returns the Matching of a request.
func (t *Table) Match(r *http.Request) Matching {
	if !t.routed {
		return Matching{}
	}
	// Routes are few, so what is the same for all requests of one is compared once.
	key := route{r.Pattern, r.Method}
	found, ok := t.byRoute.Get(key)
	if !ok {
		found = &routing{route: pattern.FromRouter(r.Pattern), matches: make([]match, len(t.policies))}
		standard := pattern.Standard(r.Method) != "" // clients can invent others, which adapters leave out of the route
		for i, p := range t.policies {
			found.matches[i] = p.match(found.route, r.Method)
			if standard && found.matches[i].gap != nil {
				found.gaps.Store(true)
			}
		}
		if standard {
			t.byRoute.Put(key, found)
		}
	}

	m := Matching{routing: found, r: r}
	if found.gaps.Load() {
		t.reportGaps(&m)
	}
	return m
}

// reportGaps logs the gaps of a route at its first request whose path is as the router saw it: behind a mount the path that is
// left decides, and a client may spell the path in a way of its own.
func (t *Table) reportGaps(m *Matching) {
	if !m.below() || !m.gaps.CompareAndSwap(true, false) {
		return
	}
	for i, p := range t.policies {
		if g := m.matches[i].gap; g != nil {
			t.Log.Report(diag.RouteApart, p.name, g.text, "policy", p.name, "pattern", g.pattern, "route", m.r.Pattern)
		}
	}
}

// match compares the policy's patterns with the route.
func (p *policy) match(route *pattern.Pattern, method string) (m match) {
	m.always = len(p.patterns) == 0
	narrower, everyMethod, byRoute := "", false, m.always
	for i, own := range p.patterns {
		on := own.On(route)

		// A subtree may be meant for some methods alone, and the router behind an open route knows its methods.
		if on == pattern.Always && !own.Open() && !route.Open() && route.AnyMethod() && own.SameHost(route) {
			everyMethod = everyMethod || own.AnyMethod()
			m.gap = &gap{p.routes[i], someMethods}
		}

		// The methods differ if middleware has rewritten the request's after the router found the route.
		if !own.MatchMethod(method) && !own.MatchMethodOf(route) {
			continue
		}

		switch on {
		case pattern.Always:
			m.always = m.always || own.SameHost(route)
			m.checks = append(m.checks, check{Pattern: own, anyPath: true})
		case pattern.ByPath:
			m.checks = append(m.checks, check{Pattern: own, greedy: route.Open()})
		case pattern.Apart:
			narrower = p.routes[i]
		}
		byRoute = byRoute || on == pattern.Always || on == pattern.ByPath

		// Behind StripPrefix or a mount the path that is left decides, whatever the route says. Any router may follow.
		m.checks = append(m.checks, check{Pattern: own, outside: true, greedy: true})
	}

	switch {
	case narrower != "" && !byRoute:
		m.gap = &gap{narrower, apart}
	case everyMethod:
		m.gap = nil
	}
	return m
}

// Applies reports whether the policy with this index applies to the request.
func (m *Matching) Applies(i int) bool {
	if m.routing == nil || m.matches[i].always {
		return true
	}
	for _, c := range m.matches[i].checks {
		if c.outside && m.below() {
			continue
		}
		if c.MatchHost(m.r.Host) && (c.anyPath || c.MatchURL(m.r.URL, c.greedy)) {
			return true
		}
	}
	return false
}

// below reports whether the path is as the router saw it that found the route. A path below a mount may
// be one that looks so after a prefix was removed, as of /api/api/7.
func (m *Matching) below() bool {
	if !m.asked {
		m.asked, m.isBelow = true, m.route.Serves(m.r.URL) && !(m.route.Mount() && shortened(m.r))
	}
	return m.isBelow
}

// shortened reports whether the path has fewer segments than the client sent.
func shortened(r *http.Request) bool {
	if sent, _, _ := strings.Cut(r.RequestURI, "?"); sent == r.URL.Path {
		return false
	}
	sent, err := url.ParseRequestURI(r.RequestURI)
	return err == nil && depth(sent.Path) > depth(r.URL.Path)
}

// depth is the number of a path's segments, empty ones too.
func depth(path string) int { return strings.Count(strings.TrimRight(path, "/"), "/") }
