package middleware

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

const (
	firstKeys    = 100 // requests whose keys are checked
	firstLimits  = 250 // requests whose limits are checked
	maxFirstKeys = 128 // different keys that are kept for that
)

var firstSeed = maphash.MakeSeed()

// firstRequests counts the first requests of a policy, which together show
// mistakes that no single request can.
type firstRequests struct {
	mu        sync.Mutex
	requests  int             // all
	limited   int             // with a limit
	anonymous int             // of limited, with an empty key that nothing explains
	noUser    int             // of limited, without the user that Key looks for
	noRoute   int             // of limited, without the route that Key looks for
	keys      map[uint64]bool // hash of a key: whether LimitFor returned a limit; nil if that is not checked
}

func newFirstRequests(p *Policy) *firstRequests {
	f := new(firstRequests)
	if p.LimitFor != nil {
		f.keys = map[uint64]bool{}
	}
	return f
}

// note counts a request, if it is one of the first, and logs what they show.
func (p *policy) note(key string, limited bool, why keyNotice) {
	f := p.first.Load()
	if f == nil {
		return
	}
	found, over := f.add(key, limited, why)
	if over {
		p.first.Store(nil)
	}
	for _, code := range found {
		p.limiter.log.Report(code, p.Name, firstTexts[code], "policy", p.Name)
	}
}

// noteUnlimited counts a request without a limit. It calls Key only for that.
func (p *policy) noteUnlimited(r *http.Request) {
	if p.first.Load() == nil {
		return
	}
	key := ""
	_ = safely(func() (err error) { // without a key there is nothing to compare
		key, err = p.Key(r)
		return err
	})
	p.note(key, false, noNotice)
}

var firstTexts = map[diag.Code]string{
	diag.KeyBeforeAuth: fmt.Sprintf("none of the first %d requests had a user; if users do sign in, the limiter runs before the authentication: mount it after", firstKeys),
	diag.RouteUnknown:  fmt.Sprintf("none of the first %d requests had a route, so all of them count as one: use the adapter of your router (adapters/chi in chi's Use), or around a ServeMux ratelimit.Routes(mux)", firstKeys),
	diag.AnonymousOnly: fmt.Sprintf("the first %d requests all had an empty key, so they share one bucket: give each client a key", firstKeys),
	diag.LimitUnset:    "LimitFor gave some requests of a key a limit and others none, so these are not limited: want a limit for all requests of a key",
}

// add counts a request. It returns the problems that this request completes, and
// whether it was the last.
func (f *firstRequests) add(key string, limited bool, why keyNotice) (found []diag.Code, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if limited {
		f.limited++
		if key == "" && why != explained {
			f.anonymous++
		}
		switch why {
		case noUser:
			f.noUser++
		case noRoute:
			f.noRoute++
		}
		switch {
		case f.limited != firstKeys:
		case f.noUser == firstKeys:
			found = append(found, diag.KeyBeforeAuth)
		case f.noRoute == firstKeys:
			found = append(found, diag.RouteUnknown)
		case f.anonymous == firstKeys:
			found = append(found, diag.AnonymousOnly)
		}
	}
	if f.keys != nil && key != "" { // anonymous requests may be of many clients
		hash := maphash.String(firstSeed, key) // keys may be long
		before, known := f.keys[hash]
		switch {
		case known && before != limited:
			found = append(found, diag.LimitUnset)
			f.keys = nil
		case !known && len(f.keys) < maxFirstKeys:
			f.keys[hash] = limited
		}
	}
	return found, f.requests >= firstLimits || f.keys == nil && f.limited >= firstKeys
}
