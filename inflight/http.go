package inflight

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"strings"

	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/routes"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// Limit says how many requests of a key may run at once. Its words mean what
// they mean in a [middleware.Policy].
type Limit struct {
	// Name is the limit's name in metrics and in the key of its slots, "<Name>:<key>": a job may
	// share them by Acquire(ctx, "exports:"+key, 3). Up to 64 printable ASCII characters
	// without a colon. Required.
	Name string

	// Key says who is counted; see package keyfunc. With keyfunc.Const it is the service itself,
	// and a denial is 503 in place of 429. All requests with an empty key count together, or see
	// SkipAnonymous. Required.
	Key func(*http.Request) (string, error)

	// Max is how many requests of a key may run at once, on all servers together. Two limits with
	// the same Name may have a different Max: the lower one keeps a reserve for the other. Required.
	Max int

	// SkipAnonymous exempts requests with an empty key.
	SkipAnonymous bool

	// Routes are the routes that are limited, as in [middleware.Policy]; empty means every request.
	Routes []string

	// Skip returns true for a request that is exempt.
	Skip func(*http.Request) bool

	// Shadow makes the limit report denials to Observe without denying.
	Shadow bool

	// OnFailure is what happens while Redis does not decide, or Key fails. With FailLocal, the
	// default, this server admits a request while it holds fewer than its share: Max divided by
	// the servers that it has counted, at least 1, and 1 if it has never reached Redis. A request
	// whose Key fails counts as anonymous.
	OnFailure middleware.FailureMode
}

// Decision is what a [Limit] has decided about a request. It is read-only.
type Decision struct {
	Name string // of the Limit
	Key  string // of the request
	Max  int    // of the Limit

	// Allowed is false if the request is denied. A request that passes by FailOpen or Shadow is
	// allowed and holds no slot.
	Allowed bool

	// Full is true if there was no free slot, also for a Shadow.
	Full bool

	// Err is why Redis has not decided, or why the Key failed; otherwise nil.
	Err error
}

// Status is the status of the response to a denied request: 429 if its key has too many
// requests, 503 if the service has, or if it was not decided.
func (d *Decision) Status() int {
	if d.Full && !strings.HasPrefix(d.Key, "const:") {
		return http.StatusTooManyRequests
	}
	return http.StatusServiceUnavailable
}

// Handler returns middleware that holds a slot while a handler runs, until it returns, panics or
// has given the slot back: see [FromContext]. It panics if the Limit is not valid: [Limiter.Gate]
// returns the error. The adapters have the same for their frameworks.
func (l *Limiter) Handler(limit Limit) func(http.Handler) http.Handler {
	gate, err := l.Gate(limit)
	if err != nil {
		panic(err)
	}
	return func(next http.Handler) http.Handler {
		return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
			r, release, ok := gate.Allow(w, r)
			if ok {
				defer release()
				next.ServeHTTP(w, r)
			}
		})
	}
}

// Gate lets requests pass by a [Limit]: for adapters.
type Gate struct {
	Limit
	limiter *Limiter
	routes  routes.Table
}

// Gate returns a Gate, or an error that joins the mistakes in the Limit.
func (l *Limiter) Gate(limit Limit) (*Gate, error) {
	g := &Gate{Limit: limit, limiter: l, routes: routes.Table{Log: &l.log}}
	var errs []error
	report := func(format string, args ...any) {
		errs = append(errs, fmt.Errorf("inflight: limit %.80q: "+format, append([]any{g.Name}, args...)...))
	}
	if g.Name == "" || len(g.Name) > 64 || strings.ContainsFunc(g.Name, func(r rune) bool { return r < ' ' || r > '~' || r == ':' }) {
		report("Name is not valid; want 1 to 64 printable ASCII characters without a colon")
	}
	if g.Key == nil {
		report("Key is nil; want one of package keyfunc or your own")
	}
	if g.Max < 1 {
		report("Max is %d; want 1 or more", g.Max)
	}
	for i, err := range g.routes.Add(g.Name, g.Routes) {
		if err != nil {
			report("Routes[%d] is %.80q: %w", i, g.Routes[i], err)
		}
	}
	if g.OnFailure > middleware.FailClosed {
		report("OnFailure is %d; want FailLocal, FailOpen or FailClosed", g.OnFailure)
	}
	return g, errors.Join(errs...)
}

// Allow takes a slot for a request, or answers it. If ok is true, pass the returned request
// on, which carries the slot, and call release when it is over. If not, write nothing.
func (g *Gate) Allow(w http.ResponseWriter, r *http.Request) (_ *http.Request, release func(), ok bool) {
	if m := g.routes.Match(r); !m.Applies(0) || g.Skip != nil && g.Skip(r) {
		return r, func() {}, true
	}
	key, err := g.Key(r)
	if key == "" && err == nil && g.SkipAnonymous {
		return r, func() {}, true
	}

	d := &Decision{Name: g.Name, Key: key, Max: g.Max}
	hold := g.decide(r.Context(), d, err)
	if observe := g.limiter.cfg.Observe; observe != nil {
		observe(r, d)
	}
	switch {
	case !d.Allowed:
		g.deny(w, r, d)
		return r, nil, false
	case hold == nil: // FailOpen or Shadow
		return r, func() {}, true
	}

	slot := &Slot{hold: hold, outer: FromContext(r.Context())}
	return r.WithContext(context.WithValue(r.Context(), slotKey{}, slot)), hold.release, true
}

// decide sets what is decided about a request. keyErr is the error of its Key.
func (g *Gate) decide(ctx context.Context, d *Decision, keyErr error) (h *hold) {
	var err error
	if keyErr != nil {
		d.Key, d.Err = "", fmt.Errorf("inflight: limit %s: Key: %w", g.Name, keyErr)
		g.limiter.log.Report(diag.PolicyFailed, g.Name, "a limit of requests in flight has no key of a request", "policy", g.Name, "error", keyErr.Error())
	}

	name, c := g.Name+":"+d.Key, g.limiter.countsOf(g.Name)
	// Without a key FailLocal counts the request as anonymous, and other modes ask nobody.
	if keyErr == nil || g.OnFailure == middleware.FailLocal {
		h, err = g.limiter.acquire(ctx, name, 1, g.Max, briefly, c)
		if errors.Is(err, errUndecided) && g.OnFailure == middleware.FailLocal {
			d.Err = err
			h, err = g.limiter.holdAlone(name, g.Max, c)
		}
	}

	d.Full = errors.Is(err, ErrFull)
	if err != nil && !d.Full {
		d.Err = err
	}
	d.Allowed = h != nil || g.Shadow || g.OnFailure == middleware.FailOpen && !d.Full && !errors.Is(err, ErrClosed)
	return h
}

// holdAlone takes a slot if this server holds fewer than its share, for the time in which Redis does not decide.
func (l *Limiter) holdAlone(name string, most int, c *counts) (*hold, error) {
	s := l.shard(name)
	s.mu.Lock()
	defer s.mu.Unlock()
	share := 1 // a server that has never reached Redis may be one of many
	if servers := int(l.servers.Load()); servers > 0 {
		share = max(1, most/servers)
	}
	switch k := s.key(name); {
	case k == nil:
		return nil, ErrClosed
	case k.held < share:
		return k.hold(1, c), nil
	}
	c.denied.Add(1)
	return nil, ErrFull
}

// FromContext returns the slot that a request holds, or nil. Release of it, which may be called on
// nil, gives it back before the handler returns; if several limits are around a handler, the slots of
// all.
func FromContext(ctx context.Context) *Slot {
	s, _ := ctx.Value(slotKey{}).(*Slot)
	return s
}

type slotKey struct{}

// ReleaseDenied is an observer of a [middleware.Limiter] inside of a Handler: it gives the slot of a
// request back that the limiter denies, before the denial is written.
func ReleaseDenied(r *http.Request, d *middleware.Decision) {
	if !d.Allowed {
		FromContext(r.Context()).Release()
	}
}
