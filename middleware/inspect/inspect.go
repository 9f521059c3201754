package inspect

import (
	"errors"
	"fmt"
	"net/http"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Config configures an [Inspector]. Use keyed literals: fields may be added.
type Config struct {
	// Authorize reports whether the client may see the page and, if the method is
	// POST, reset subjects. If it returns false the response is 403. Required.
	Authorize func(*http.Request) bool
}

// Inspector is an [http.Handler] that shows what limiters do. Create it with [New].
type Inspector struct {
	authorize  func(*http.Request) bool
	sameOrigin http.CrossOriginProtection
	limiters   []*middleware.Limiter
	store      gcra.Store
	record     record
}

// New returns an Inspector of the limiters, which must share one store. If two have a policy
// of the same name, the page describes the first limiter's and counts the decisions of both.
// The Inspector observes the limiters as long as they live, so create one and keep it.
//
// New returns an error without [Config.Authorize] or limiters, and if a limiter is nil,
// repeated or has another store.
func New(cfg Config, limiters ...*middleware.Limiter) (*Inspector, error) {
	return newAt(time.Now, cfg, limiters)
}

// newAt is New with a clock.
func newAt(now func() time.Time, cfg Config, limiters []*middleware.Limiter) (*Inspector, error) {
	if errs := check(cfg, limiters); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	i := &Inspector{authorize: cfg.Authorize, limiters: limiters, store: limiters[0].Store()}
	i.record.now, i.record.start, i.record.current = now, now(), i.current
	// Observers cannot be removed, so they come after all that may fail.
	for _, l := range limiters {
		l.Observe(i.record.observe)
	}
	return i, nil
}

func check(cfg Config, limiters []*middleware.Limiter) (errs []error) {
	if cfg.Authorize == nil {
		errs = append(errs, errors.New("inspect: Authorize is nil; want a function that decides who may see and reset subjects"))
	}
	if len(limiters) == 0 {
		errs = append(errs, errors.New("inspect: no limiters; want at least one"))
	}

	// A nil limiter has no store to compare with.
	first := slices.IndexFunc(limiters, func(l *middleware.Limiter) bool { return l != nil })
	for i, l := range limiters {
		switch {
		case l == nil:
			errs = append(errs, fmt.Errorf("inspect: limiter number %d is nil; want one from middleware.New", i+1))
		case slices.Contains(limiters[:i], l):
			errs = append(errs, fmt.Errorf("inspect: limiter number %d is repeated; want each once, or its decisions count twice", i+1))
		case i > first && !iface.Same(l.Store(), limiters[first].Store()):
			errs = append(errs, fmt.Errorf("inspect: limiter number %d has another store than number %d; want an Inspector for each store", i+1, first+1))
		}
	}
	return errs
}

// current returns the policies of all limiters as they are now, and whose each is, by name.
func (i *Inspector) current() (list []middleware.Policy, owners map[string]*middleware.Limiter) {
	owners = map[string]*middleware.Limiter{}
	for _, l := range i.limiters {
		for _, p := range l.Policies() {
			if owners[p.Name] == nil {
				owners[p.Name] = l
				list = append(list, p)
			}
		}
	}
	return list, owners
}

// ServeHTTP implements [http.Handler].
func (i *Inspector) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	setSecurityHeaders(w.Header())
	if i.authorize == nil || !i.authorize(r) {
		writeText(w, http.StatusForbidden, "not allowed")
		return
	}

	// A browser sends the administrator's cookie with the form of any page.
	switch r.Method {
	case http.MethodGet, http.MethodHead:
	case http.MethodPost:
		if err := i.sameOrigin.Check(r); err != nil {
			writeText(w, http.StatusForbidden, "denied: the request comes from another site")
			return
		}
	default:
		w.Header().Set("Allow", "GET, HEAD, POST")
		writeText(w, http.StatusMethodNotAllowed, "want GET, HEAD or POST")
		return
	}

	// A client that may see the page may still send a form without end.
	r.Body = http.MaxBytesReader(w, r.Body, maxForm)
	if err := r.ParseForm(); err != nil {
		writeText(w, http.StatusBadRequest, "the form cannot be read: "+err.Error())
		return
	}

	if r.Method == http.MethodPost {
		i.post(w, r)
		return
	}
	v, status := i.view(), http.StatusOK
	if r.Form.Has("subject") {
		v.Subject = i.lookUp(r.Context(), r.Form.Get("subject"))
		v.Subject.Reset = slices.DeleteFunc(r.Form["reset"], func(name string) bool {
			return !slices.ContainsFunc(v.Policies, func(p policy) bool { return p.Name == name })
		})
		if v.Subject.failed {
			status = http.StatusServiceUnavailable
		}
	}
	write(w, r, status, v)
}
