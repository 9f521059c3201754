package middleware

import (
	"net/http"

	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// policies are the policies of a limiter and what is known of the routes.
type policies struct {
	list    []*policy
	limiter *Limiter
	routed  bool // some have Routes
	memo    pattern.Cache[route, []verdict]
}

// route is what decides which policies apply, as far as it is bounded: the
// pattern of the route that will serve the request, and one of the standard
// methods.
type route struct{ pattern, method string }

// verdict is what a route says about a policy.
type verdict struct {
	applies bool    // to every request
	checks  []check // to those that pass one of them
}

// check is a pattern to be held against the request itself.
type check struct {
	*pattern.Pattern
	covered bool // the route's paths are all the pattern's, so only the host is left
	greedy  bool // another router may decide, for which a last parameter holds several segments
}

// prepare works out what the checked policies have in common.
func (ps *policies) prepare() {
	for _, p := range ps.list {
		p.text = newText(p.Name, p.Limit)
		ps.routed = ps.routed || len(p.routes) > 0
	}
}

// verdicts tells for each policy whether it is for this request's route. It is
// nil when no policy has Routes.
//
// Where the router has said which route will serve the request, the route
// decides: it is what the spelling of the path leads to. A route with
// wildcards may be wider than a policy's pattern, and no route at all is
// wider than anything, so there the path is compared too.
func (ps *policies) verdicts(r *http.Request) []verdict {
	if !ps.routed {
		return nil
	}
	key := route{r.Pattern, r.Method}
	vs, ok := ps.memo.Get(key)
	if ok {
		return vs
	}
	known := pattern.FromRouter(r.Pattern)
	vs = make([]verdict, len(ps.list))
	for i, p := range ps.list {
		vs[i] = p.verdict(known, r.Method)
	}
	if pattern.Standard(r.Method) != "" { // others are for the client to invent
		ps.memo.Put(key, vs)
	}
	return vs
}

func (p *policy) verdict(route *pattern.Pattern, method string) (v verdict) {
	v.applies = len(p.routes) == 0
	for _, own := range p.routes {
		covered := own.Covers(route)
		switch {
		case !own.MatchMethod(method):
		case covered && own.SameHost(route):
			v.applies = true
		case covered || !route.Fixed():
			v.checks = append(v.checks, check{own, covered, route.Open()})
		}
	}
	return v
}

func (v *verdict) of(r *http.Request) bool {
	if v.applies {
		return true
	}
	for _, c := range v.checks {
		if c.MatchHost(r.Host) && (c.covered || c.MatchURL(r.URL, c.greedy)) {
			return true
		}
	}
	return false
}
