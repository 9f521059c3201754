package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Config says how an [Inspector] works. Use keyed literals: fields may be
// added.
type Config struct {
	// Authorize reports whether whoever sends the request may look and, if its
	// method is POST, reset subjects. It is asked first, for every request; the
	// others get 403. Required: there is no default.
	Authorize func(*http.Request) bool
}

// Inspector is an [http.Handler] that shows what limiters are doing. It is made
// by [New] and safe for concurrent use.
type Inspector struct {
	authorize  func(*http.Request) bool
	sameOrigin http.CrossOriginProtection
	limiters   []*middleware.Limiter
	store      gcra.Store
	record     record
}

// New returns an Inspector of the limiters, which must share one store: several
// are one page, a policy that two of them have by the same name is shown once,
// as it is in the first. It observes them from now on, for as long as they live
// (see [middleware.Limiter.Observe]), so make one Inspector and keep it.
//
// Without [Config.Authorize], without limiters, with one that is nil or there
// twice, or with limiters of different stores it returns an error that names
// every mistake.
func New(cfg Config, limiters ...*middleware.Limiter) (*Inspector, error) {
	return newAt(time.Now, cfg, limiters)
}

// newAt is New with a clock.
func newAt(now func() time.Time, cfg Config, limiters []*middleware.Limiter) (*Inspector, error) {
	if errs := check(cfg, limiters); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	i := &Inspector{authorize: cfg.Authorize, limiters: limiters, store: limiters[0].Store()}
	i.record.begin(now, i.current, statsOf(i.store))
	for _, l := range limiters {
		l.Observe(i.record.observe)
	}
	return i, nil
}

func check(cfg Config, limiters []*middleware.Limiter) (errs []error) {
	if cfg.Authorize == nil {
		errs = append(errs, errors.New("inspect: Authorize is nil; want a function that says who may see and reset subjects"))
	}
	if len(limiters) == 0 {
		errs = append(errs, errors.New("inspect: no limiters; want at least one"))
	}
	first := slices.IndexFunc(limiters, func(l *middleware.Limiter) bool { return l != nil })
	for i, l := range limiters {
		switch {
		case l == nil:
			errs = append(errs, fmt.Errorf("inspect: limiter number %d is nil; want one from middleware.New", i+1))
		case slices.Contains(limiters[:i], l):
			errs = append(errs, fmt.Errorf("inspect: limiter number %d is there already; want each once, or it counts double", i+1))
		case i > first && !same(l.Store(), limiters[first].Store()):
			errs = append(errs, fmt.Errorf("inspect: limiter number %d has another store than number %d; want an Inspector for each store", i+1, first+1))
		}
	}
	return errs
}

// same compares stores, of which a user's own may be of a type that == panics on.
func same(a, b gcra.Store) bool {
	return reflect.ValueOf(a).Comparable() && reflect.ValueOf(b).Comparable() && a == b
}

// current returns the policies of all limiters as they are now.
func (i *Inspector) current() []middleware.Policy {
	var list []middleware.Policy
	seen := map[string]bool{}
	for _, l := range i.limiters {
		for _, p := range l.Policies() {
			if !seen[p.Name] {
				seen[p.Name] = true
				list = append(list, p)
			}
		}
	}
	return list
}

// ServeHTTP implements [http.Handler].
func (i *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	protect(w.Header())
	if i.authorize == nil || !i.authorize(r) {
		tell(w, http.StatusForbidden, "not allowed")
		return
	}
	switch r.Method {
	case http.MethodGet, http.MethodHead:
		i.show(w, r)
	case http.MethodPost:
		if err := i.sameOrigin.Check(r); err != nil {
			tell(w, http.StatusForbidden, "refused: the request comes from another site")
			return
		}
		i.reset(w, r)
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		tell(w, http.StatusMethodNotAllowed, "want GET, HEAD or POST")
	}
}
