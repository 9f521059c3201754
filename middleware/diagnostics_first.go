package middleware

import (
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// firstKeys is the number of a policy's first requests whose keys are checked.
const firstKeys = 100

// firstRequests counts the first requests of a policy, which together show
// mistakes that no single request can.
type firstRequests struct {
	passed atomic.Bool // all of them

	mu       sync.Mutex
	requests int
	seen     [explained + 1]int // by keyNotice
	kinds    []string           // of the keys, at most four
}

// note counts a request, if it is one of the first, and logs what all of them show.
func (p *policy) note(key string, why keyNotice) {
	if key == "" && why == noNotice {
		why = noUser
	}
	f := p.firsts
	if f.passed.Load() || !f.add(key, why) {
		return
	}

	// Nothing changes f after its last request, so no request waits for the log.
	f.passed.Store(true)
	switch firstKeys {
	case f.seen[noUser]:
		p.reportFirst(diag.AnonymousOnly, "none of the first %d requests had a user, or a key: if users do sign in, mount the limiter after the authentication; otherwise give each client a key")
	case f.seen[noRoute]:
		p.reportFirst(diag.RouteUnknown, "the first %d requests all had no route, or one that ends in /* as a mount of chi does, so routes may share a bucket: use the adapter of your router (adapters/chi in chi's Use), or around a ServeMux ratelimit.Routes(mux)")
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
	f.seen[why]++
	if k := subject.KindOf(key); len(f.kinds) < 4 && !slices.Contains(f.kinds, k) {
		f.kinds = append(f.kinds, strings.Clone(k)) // keeps no subject in memory
	}
	return f.requests == firstKeys
}

func (p *policy) reportFirst(code diag.Code, format string) {
	p.limiter.log.Report(code, p.Name, fmt.Sprintf(format, firstKeys), "policy", p.Name)
}
