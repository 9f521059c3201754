package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"reflect"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// Config says how a [Limiter] works; its policies say how much. Use keyed
// literals: fields may be added.
type Config struct {
	// Store keeps the state that the servers share. While it does not answer,
	// policies that fail local (see [FailLocal]) decide on its Local if it is a
	// [gcra.LocalStore], as redisstore.Store is, and otherwise on a [gcra.Memory] that
	// the limiter makes. Required.
	Store gcra.Store

	// Headers chooses the fields that tell clients where they stand; the zero
	// value means HeadersDraft6.
	Headers Headers

	// Deny writes the refusal in place of the default, a problem+json of RFC
	// 9457. RateLimit fields, Retry-After and Cache-Control are set already, and
	// fields that would let a cache store it (ETag, Expires, CDN-Cache-Control and
	// the like) are removed; [Decision.Status] gives the status to write. It must
	// write one: if it writes nothing, the default is written and a line goes to
	// Logger. The writer may be wrapped; [http.ResponseController] finds the
	// original.
	Deny func(http.ResponseWriter, *http.Request, Decision)

	// Observe is called once for each decision, before anything is written and
	// before the request waits for its Delay. It must not block, nor keep or
	// change the Decision's Results. See [Limiter.Observe] for more than one.
	Observe func(*http.Request, Decision)

	// Logger gets what is wrong with the set-up, at most one line in five minutes
	// for each problem: a Key that fails, a proxy that the keys ignore, a store
	// that does not answer. Each line has a code and a link to the section of
	// docs/troubleshooting.md about it. Nil means [slog.Default].
	Logger *slog.Logger

	// Instances is how many servers share the limits. While a server limits by
	// itself, its share of each limit is one part in so many; 0 means 1.
	Instances int
}

// Policy is one limit on one kind of key. Two windows are two policies. Use
// keyed literals: fields may be added.
type Policy struct {
	// Name stands in headers, metrics and store keys, so that renaming a policy
	// starts it afresh. Up to 64 printable ASCII characters, unique within the
	// limiter. Limiters that share a store share a bucket wherever policy name and
	// key are equal, so give each limit a name of its own: under two limits of one
	// name the smaller forgives what the larger has counted. Required.
	Name string

	// Key says who is counted; see package keyfunc. An empty key is nobody in
	// particular: all such requests share one bucket. With an error the policy
	// follows its OnFailure. Required.
	Key func(*http.Request) (string, error)

	// Limit is how much each key may do. Required unless LimitFor is set.
	Limit gcra.Limit

	// LimitFor gives the limit for a request, for example by the customer's
	// plan. It must be the same for all requests of a key, and may change in time.
	// The zero Limit means that the policy does not apply: a plan that is missing
	// in a map is not limited, so give unknown plans a limit of their own. A limit
	// that is not valid follows OnFailure. When both are set LimitFor decides, and
	// Limit is what this server goes by if LimitFor panics or errs so.
	LimitFor func(*http.Request) gcra.Limit

	// Routes are the routes that the policy is for, as patterns of
	// [http.ServeMux]: "POST /login", "/users/{id}", "/static/". The forms of gin
	// and echo ("/users/:id", "/files/*path") mean the same. "/api" is one path,
	// "/api/" is all below it. Empty means every request. A request is matched by
	// the route that will serve it where that is known, and else by its path in any
	// spelling that could lead there. As one router (echo) gives a parameter at the
	// end all that follows, "/users/{id}" then matches /users/7/posts too.
	Routes []string

	// Cost is how many units the request takes; nil means 1, and 0 only looks.
	// A negative cost follows OnFailure, as does a ContentLength of -1, which
	// means that a client has not told.
	Cost func(*http.Request) int

	// Skip exempts a request from this policy.
	Skip func(*http.Request) bool

	// Shadow decides and reports, but refuses nobody and is not seen by clients.
	// A new limit can be watched so before it is enforced.
	Shadow bool

	// MaxDelay holds a request back for up to this long rather than refuse it.
	MaxDelay time.Duration

	// OnFailure is what happens when the policy cannot be decided.
	OnFailure FailureMode
}

// FailureMode is what happens when a policy cannot be decided as asked: the
// store does not answer, or the policy's own functions fail.
type FailureMode uint8

const (
	// FailLocal goes on limiting with the state of this server alone, each
	// limit divided by [Config.Instances]. What is not known of the request is
	// replaced by the stricter guess: anonymous for the key, all that
	// a bucket holds for the cost. Without a limit nothing can be decided: that
	// is FailClosed.
	FailLocal FailureMode = iota

	// FailOpen lets the request pass this policy uncounted.
	FailOpen

	// FailClosed refuses the request with 503 Service Unavailable.
	FailClosed
)

const (
	maxName      = 64
	maxPolicies  = 256                  // what redisstore.Store takes at once
	maxDelay     = 366 * 24 * time.Hour // what a store accepts
	maxInstances = 1_000_000
)

// New returns a Limiter for the policies, or an error that joins one for each
// mistake in them ([errors.Join]), naming the policy, the field, the value and
// what would be right; those in a policy are of type [*FieldError].
func New(cfg Config, policies ...Policy) (*Limiter, error) {
	l := &Limiter{
		store:     cfg.Store,
		headers:   cfg.Headers,
		deny:      cfg.Deny,
		instances: max(cfg.Instances, 1),
		local:     local(cfg.Store),
		log:       diag.Log{Logger: cfg.Logger},
	}
	if l.headers == 0 {
		l.headers = HeadersDraft6
	}
	l.Observe(cfg.Observe)
	ps, errs := compile(policies)
	if errs = append(cfg.check(l.local), errs...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}
	l.use(ps)
	l.checkNames()
	return l, nil
}

// Must is New for configurations that are written in the program: it panics
// with the error.
//
//	limiter := middleware.Must(middleware.New(cfg, policies...))
func Must(l *Limiter, err error) *Limiter {
	if err != nil {
		panic(err)
	}
	return l
}

func (cfg *Config) check(local gcra.Store) (errs []error) {
	if isNil(cfg.Store) {
		errs = append(errs, errors.New("ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own"))
	}
	if isNil(local) {
		errs = append(errs, fmt.Errorf("ratelimit: Store is a %T whose Local returns nil; want a store to decide on while it does not answer, or no method Local", cfg.Store))
	}
	if cfg.Headers&^headersKnown != 0 || cfg.Headers&HeadersNone != 0 && cfg.Headers != HeadersNone {
		errs = append(errs, fmt.Errorf("ratelimit: Headers is %#b; want HeadersDraft6, HeadersDraft11, HeadersXRateLimit joined by |, or HeadersNone alone", cfg.Headers))
	}
	if cfg.Instances < 0 || cfg.Instances > maxInstances {
		errs = append(errs, fmt.Errorf("ratelimit: Instances is %d; want 0 (same as 1) to %d", cfg.Instances, maxInstances))
	}
	return errs
}

// local is what FailLocal decides on.
func local(s gcra.Store) gcra.Store {
	if s, ok := s.(gcra.LocalStore); ok && !isNil(s) {
		return s.Local()
	}
	return gcra.NewMemory()
}

// isNil sees through an interface that holds a nil pointer.
func isNil(s any) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
}

// compile makes the policies ready for requests, or returns an error for each
// mistake in them.
func compile(list []Policy) (_ *policies, errs []error) {
	if len(list) == 0 {
		errs = append(errs, errors.New("ratelimit: no policies; want at least one"))
	}
	if len(list) > maxPolicies {
		return nil, []error{fmt.Errorf("ratelimit: %d policies; want at most %d", len(list), maxPolicies)}
	}
	ps := new(policies)
	seen := map[string]bool{}
	for i := range list {
		p := &list[i]
		report := func(field, format string, args ...any) {
			errs = append(errs, &FieldError{Index: i, Name: p.Name, Field: field, Err: fmt.Errorf(format, args...)})
		}
		if seen[p.Name] && p.Name != "" {
			report("Name", "is taken by an earlier policy; want unique names")
		}
		seen[p.Name] = true
		ps.list = append(ps.list, p.compile(report))
	}
	if len(errs) == 0 {
		ps.prepare()
	}
	return ps, errs
}

// compile checks the policy and works out whatever does not depend on the
// request.
func (p *Policy) compile(report func(field, format string, args ...any)) *policy {
	c := &policy{Policy: *p}
	switch {
	case p.Name == "":
		report("Name", `is missing; want one such as "client", as the store keeps the policy's state under it`)
	case len(p.Name) > maxName:
		report("Name", "has %d characters; want at most %d", len(p.Name), maxName)
	case !printable(p.Name):
		report("Name", "is %q; want printable ASCII", p.Name)
	}
	if p.Key == nil {
		report("Key", "is nil; want one of package keyfunc or your own")
	}
	if p.Limit != (gcra.Limit{}) {
		if err := p.Limit.Validate(); err != nil {
			report("Limit", "is %v: %w", p.Limit, err)
		}
	} else if p.LimitFor == nil {
		report("Limit", "is missing; want one such as gcra.PerMinute(100), or LimitFor")
	}
	for i, route := range p.Routes {
		parsed, err := pattern.Parse(route)
		if err != nil {
			report(fmt.Sprintf("Routes[%d]", i), "is %q: %w", clip(route), err)
		}
		c.routes = append(c.routes, parsed)
	}
	if p.MaxDelay < 0 || p.MaxDelay > maxDelay {
		report("MaxDelay", "is %v; want 0 (no delay) to %v", p.MaxDelay, maxDelay)
	}
	if p.OnFailure > FailClosed {
		report("OnFailure", "is %d; want FailLocal, FailOpen or FailClosed", p.OnFailure)
	}
	c.first.Store(newFirst(p))
	return c
}

func printable(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// clip bounds what an error message repeats of its input.
func clip(s string) string { return clipTo(80, s) }

func clipTo(n int, s string) string {
	if len(s) > n {
		return s[:n] + "..."
	}
	return s
}
