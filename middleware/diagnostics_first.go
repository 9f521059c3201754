package middleware

import (
	"fmt"
	"sync"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// firstKeys is the number of a policy's first requests whose keys are checked.
const firstKeys = 100

// firstRequests counts the first requests of a policy, which together show
// mistakes that no single request can.
type firstRequests struct {
	mu        sync.Mutex
	requests  int                // all
	anonymous int                // with an empty key that nothing explains
	seen      [explained + 1]int // by keyNotice
}

// note counts a request, if it is one of the first, and logs what they show.
func (p *policy) note(key string, why keyNotice) {
	f := p.first.Load()
	if f == nil {
		return
	}
	found, over := f.add(key, why)
	if over {
		p.first.Store(nil)
	}
	if found != "" {
		p.limiter.log.Report(found, p.Name, firstTexts[found], "policy", p.Name)
	}
}

var firstTexts = map[diag.Code]string{
	diag.KeyBeforeAuth: fmt.Sprintf("none of the first %d requests had a user; if users do sign in, the limiter runs before the authentication: mount it after", firstKeys),
	diag.RouteUnknown:  fmt.Sprintf("none of the first %d requests had a route, so all of them count as one: use the adapter of your router (adapters/chi in chi's Use), or around a ServeMux ratelimit.Routes(mux)", firstKeys),
	diag.AnonymousOnly: fmt.Sprintf("the first %d requests all had an empty key, so they share one bucket: give each client a key", firstKeys),
}

// add counts a request. It returns the problem that this request completes, and
// whether it was the last.
func (f *firstRequests) add(key string, why keyNotice) (found diag.Code, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()

	f.requests++
	if key == "" && why != explained {
		f.anonymous++
	}
	f.seen[why]++

	switch {
	case f.requests != firstKeys:
	case f.seen[noUser] == firstKeys:
		found = diag.KeyBeforeAuth
	case f.seen[noRoute] == firstKeys:
		found = diag.RouteUnknown
	case f.anonymous == firstKeys:
		found = diag.AnonymousOnly
	}
	return found, f.requests >= firstKeys
}
