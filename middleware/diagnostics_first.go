package middleware

import (
	"fmt"
	"slices"
	"sync"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/subject"
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
	kinds     []subject.Kinds    // of the keys, at most four
}

// note counts a request, if it is one of the first, and logs what all of them show.
func (p *policy) note(key string, why keyNotice) {
	if key == "" && p.SkipAnonymous {
		why = max(why, noUser) // or nobody would hear of a limiter in front of the authentication
	}
	f := p.first.Load()
	if f == nil || !f.add(key, why) {
		return
	}

	// Nothing changes f after its last request, so no request waits for the log.
	p.first.Store(nil)
	switch {
	case f.seen[noUser] == firstKeys:
		p.reportFirst(diag.AnonymousOnly, "none of the first %d requests had a user; if users do sign in, the limiter runs before the authentication: mount it after")
	case f.seen[noRoute] == firstKeys:
		p.reportFirst(diag.RouteUnknown, "the first %d requests all had no route, or one that ends in /* as a mount of chi does, so routes may share a bucket: use the adapter of your router (adapters/chi in chi's Use), or around a ServeMux ratelimit.Routes(mux)")
	case f.anonymous == firstKeys:
		p.reportFirst(diag.AnonymousOnly, "the first %d requests all had an empty key, so they share one bucket: give each client a key")
	}
}

// add counts a request, unless there have been enough, and reports whether it is the last.
func (f *firstRequests) add(key string, why keyNotice) (last bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.requests == firstKeys {
		return false
	}

	f.requests++
	if key == "" && why != explained {
		f.anonymous++
	}
	f.seen[why]++
	if k := subject.KindsOf(key); len(f.kinds) < 4 && !slices.Contains(f.kinds, k) {
		f.kinds = append(f.kinds, k)
	}
	return f.requests == firstKeys
}

func (p *policy) reportFirst(code diag.Code, format string) {
	p.limiter.log.Report(code, p.Name, fmt.Sprintf(format, firstKeys), "policy", p.Name)
}
