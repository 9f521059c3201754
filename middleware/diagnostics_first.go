package middleware

import (
	"fmt"
	"hash/maphash"
	"net/http"
	"sync"

	"github.com/seed-e377111c/ratelimit/internal/diag"
)

const (
	firstKeys    = 100 // requests whose keys are looked at
	firstLimits  = 250 // requests whose limits are looked at
	maxFirstKeys = 128 // keys that are kept meanwhile
)

var firstSeed = maphash.MakeSeed()

// first is what the first requests of a policy show together: mistakes that no
// single request can.
type firstRequests struct {
	mu        sync.Mutex
	requests  int             // all, with those that LimitFor gave no limit
	keyed     int             // those with a limit
	anonymous int             // of these, those with an empty key that is not explained
	noUser    int             // of these, those without the user that Key looks for
	noRoute   int             // of these, those without the route that Key looks for
	limited   map[uint64]bool // by hash of the key, whether LimitFor gave a limit; nil when that is not looked at
}

func newFirstRequests(p *Policy) *firstRequests {
	f := new(firstRequests)
	if p.LimitFor != nil {
		f.limited = map[uint64]bool{}
	}
	return f
}

// noteKey looks at a request with a limit.
func (p *policy) noteKey(key string, why hint) {
	if f := p.first.Load(); f != nil {
		p.note(f, key, true, why)
	}
}

// noteUnlimited looks at a request that LimitFor gave no limit. Its key is not
// needed otherwise.
func (p *policy) noteUnlimited(r *http.Request) {
	f := p.first.Load()
	if f == nil {
		return
	}
	key := ""
	_ = guard(func() (err error) {
		key, err = p.Key(r)
		return err
	})
	p.note(f, key, false, noHint)
}

func (p *policy) note(f *firstRequests, key string, limited bool, why hint) {
	found, over := f.add(key, limited, why)
	if over {
		p.first.Store(nil)
	}
	for _, code := range found {
		p.limiter.log.Report(code, p.Name, firstTexts[code], "policy", p.Name)
	}
}

var firstTexts = map[diag.Code]string{
	diag.KeyBeforeAuth: fmt.Sprintf("none of the first %d requests had a user; if users do sign in, the limiter runs before the authentication: mount it after", firstKeys),
	diag.RouteUnknown:  fmt.Sprintf("none of the first %d requests had a route, so all of them count as one: use the adapter of your router (adapters/chi in chi's Use), or around a ServeMux ratelimit.Routes(mux)", firstKeys),
	diag.AnonymousOnly: fmt.Sprintf("the first %d requests all had an empty key, so they share one bucket: give each client a key", firstKeys),
	diag.LimitUnset:    "LimitFor gave some requests of a key a limit and others none, so these are not limited: want a limit for all requests of a key",
}

// add counts a request, and returns what is wrong now and whether the first
// requests are over.
func (f *firstRequests) add(key string, limited bool, why hint) (found []diag.Code, over bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.requests++
	if limited {
		f.keyed++
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
		case f.keyed != firstKeys:
		case f.noUser == firstKeys:
			found = append(found, diag.KeyBeforeAuth)
		case f.noRoute == firstKeys:
			found = append(found, diag.RouteUnknown)
		case f.anonymous == firstKeys:
			found = append(found, diag.AnonymousOnly)
		}
	}
	if f.limited != nil && key != "" { // anonymous requests are those of many clients
		hash := maphash.String(firstSeed, key) // keys may be long
		before, known := f.limited[hash]
		switch {
		case known && before != limited:
			found = append(found, diag.LimitUnset)
			f.limited = nil
		case !known && len(f.limited) < maxFirstKeys:
			f.limited[hash] = limited
		}
	}
	return found, f.requests >= firstLimits || f.limited == nil && f.keyed >= firstKeys
}
