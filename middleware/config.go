package middleware

import (
	"cmp"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"net/http"
	"reflect"
	"slices"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/internal/routes"
	"github.com/seed-e377111c/ratelimit/internal/share"
	"github.com/seed-e377111c/ratelimit/internal/subject"
)

// Config says how a [Limiter] works; its policies say how much. Use keyed
// literals: fields may be added.
type Config struct {
	// Store keeps the limits' state; servers share it through Redis. While it fails, policies that
	// fail local (see [FailLocal]) use its Local if it is a [gcra.LocalStore], as
	// redisstore.Store is, and otherwise a [gcra.Memory] of the limiter. Required.
	Store gcra.Store

	// Headers chooses the RateLimit fields of responses; the zero value means HeadersDraft6.
	Headers Headers

	// Deny writes the response to a denied request, in place of the default, a problem+json of
	// RFC 9457. [Decision.Status] is the status to write. Retry-After, if a wait helps, and
	// Cache-Control are set already, and other fields for caches, such as ETag and Expires, are
	// removed. The request's body has been read, up to a bound: see [Limiter.Allow]. If Deny
	// writes nothing, the status is written, where the adapter can tell. The writer may be
	// wrapped: use [http.ResponseController].
	Deny func(http.ResponseWriter, *http.Request, *Decision)

	// Observe is called with the Decision about a request, before anything is written and
	// before the request waits for its Delay; not by Peek. It must not block, and must not
	// change the Decision. See also [Limiter.Observe].
	Observe func(*http.Request, *Decision)

	// Override returns what is different for a key in a policy: for overrides that operators
	// change while servers run, see package fleet. It wins over the Override of the policy,
	// which is asked if it returns false. Nil means none.
	Override func(policy, subject string) (Override, bool)

	// BanStatus is the status of the response to a client that an [Override] bans, 429 or 403;
	// 0 means 429.
	BanStatus int

	// Logger gets the problems of the set-up and of requests, each at most once in five
	// minutes; redisstore.Store has a Logger of its own. A line has a code and a
	// link to its section in docs/troubleshooting.md. At level Debug Logger also gets a line
	// for each decision, except Peek's. Nil means [slog.Default].
	Logger *slog.Logger

	// Instances is the number of servers that share the limits: a policy that fails local
	// grants the share of one of them. 0 means as many as the store has counted, if it is a
	// [gcra.LocalStore] that counts, as redisstore.Store is, and otherwise 1. Set it for
	// servers that may start while the store is away.
	Instances int
}

// Policy is one limit on one kind of key. Two windows are two policies. Use
// keyed literals: fields may be added.
type Policy struct {
	// Name is the policy's name in headers, metrics and store keys: a renamed policy has other
	// buckets. Up to 64 printable ASCII characters, unique within the limiter. Limiters that
	// share a store may share a bucket where policy name and key are equal, so give each limit
	// its own name. Required.
	Name string

	// Key says who is counted; see package keyfunc. An empty key is anonymous: anonymous
	// requests share one bucket, or see SkipAnonymous. If Key returns an error, the policy
	// follows its OnFailure. Required.
	Key func(*http.Request) (string, error)

	// SkipAnonymous exempts requests with an empty key: the policy is for users only. It does
	// not exempt a request whose Key fails. A key of keyfunc.Join is empty only if all its
	// parts are.
	SkipAnonymous bool

	// Limit is how much each key may do. Required unless LimitFor is set.
	Limit gcra.Limit

	// LimitFor returns the limit for a request, for example by the customer's plan. It wins
	// over Limit, and an Override wins over both. [gcra.Unlimited] exempts the request. All
	// requests of a key must get the same limit, which may change over time. It is not called
	// if Key or Override fails: then Limit applies.
	//
	// The zero Limit means that a plan is missing: Limit applies or, without one, OnFailure,
	// which denies unless it is FailOpen or the policy is a Shadow. An invalid limit follows
	// OnFailure.
	LimitFor func(*http.Request) gcra.Limit

	// Plans are the limits that LimitFor returns, by name, for those who look at policies: users of
	// the command ratelimit and of package inspect. [Limiter.Reset] fills buckets of their calendars
	// too. Nil means that they are not known. Without LimitFor they limit nothing, which is a mistake.
	Plans map[string]gcra.Limit

	// Override returns what is different for a key that is an exception, and true; false means
	// that the key is none. It is set and reloaded with the policy, as by package policyfile; the
	// overrides of operators, Config.Override, win over it. It gets what Key returned, "" for an anonymous request. If Override
	// panics or returns an invalid limit, the policy follows its OnFailure.
	//
	// Override is also called outside of requests, as by [Limiter.Reset] and package inspect.
	// It must be fast, as requests wait for it: look in a map, and fill the map elsewhere.
	Override func(subject string) (Override, bool)

	override func(policy, subject string) (Override, bool) // Config.Override
	firsts   *firstRequests                                // nil if no limiter has compiled the policy

	// Routes are the routes of the policy, as patterns of [http.ServeMux], such as "POST
	// /login", "/users/{id}" and "/static/"; empty means every request. The forms of gin and
	// echo ("/users/:id", "/files/*path", "/v1.*") mean the same. "/api" is nothing below it,
	// "/api/" is "/api" and all below. A host is compared with the Host field, which clients
	// choose: leave it out where the server also serves requests for other hosts.
	//
	// A request is matched by the route that will serve it, if the adapter knows it:
	// "/users/{id}" matches a route "/users/{name}", and not "/users/search", which is a route
	// of its own. Otherwise it is matched by its path, in which "/users/{id}" matches
	// /users/search and /users/7/posts too. See docs/limits.md.
	Routes []string

	// Cost returns the units that the request takes; nil means 1. With 0 the request takes
	// nothing, and a limit that is used up does not deny it. A negative cost follows OnFailure,
	// for example an unknown ContentLength, which is -1.
	Cost func(*http.Request) int64

	// Skip returns true for a request that is exempt from the policy.
	Skip func(*http.Request) bool

	// Shadow makes the policy decide and report without denying a request itself, to watch a
	// new limit before it is enforced. The RateLimit fields do not show it.
	Shadow bool

	// MaxDelay is the longest time that a request is held back instead of being denied; 0 means
	// no delay, and 366 days is the most. The deadline of the request's context may make it
	// shorter. A quota has none.
	MaxDelay time.Duration

	// MaxDebt is how many units more than are left [Decision.Settle] and [Decision.Spend] may
	// take; 0 means none. Later requests are denied, or delayed, until the debt is
	// paid. The debt of a quota ends with its period. Limiters that share the buckets of a rate
	// need the same MaxDebt and MaxDelay: with smaller ones a limiter may erase debt, and the
	// queue of requests that are held back.
	MaxDebt int64

	// OnFailure is what happens when the policy cannot be decided; the zero value
	// means FailLocal.
	OnFailure FailureMode
}

// Charge returns the policy's charge of one unit on a subject's bucket under a limit, for
// [gcra.Peek] and [gcra.Reset].
func (p *Policy) Charge(subject string, l gcra.Limit) gcra.Charge {
	c := gcra.Charge{Subject: subject, Policy: p.Name, Limit: l, Cost: 1, MaxDelay: p.MaxDelay, MaxDebt: p.MaxDebt, Shadow: p.Shadow}
	if l.IsQuota() {
		c.MaxDelay = 0
	}
	return c
}

// Limits returns the limits that the policy may apply to a subject without an override, as far as
// they are known: Limit and Plans, each once, the slowest first, and without [gcra.Unlimited].
func (p *Policy) Limits() (all []gcra.Limit) {
	for _, l := range append(slices.Collect(maps.Values(p.Plans)), p.Limit) {
		if l != (gcra.Limit{}) && l != gcra.Unlimited() && !slices.Contains(all, l) {
			all = append(all, l)
		}
	}
	slices.SortFunc(all, func(a, b gcra.Limit) int {
		return cmp.Or(cmp.Compare(a.Rate(), b.Rate()), cmp.Compare(a.Capacity(), b.Capacity()))
	})
	return all
}

// Kinds returns the kinds of the keys of the policy's first 100 requests since New or Reload, sorted,
// such as "ip" or "ip and route"; at most four, and none if the policy is not one of
// [Limiter.Policies].
func (p *Policy) Kinds() (all []string) {
	if p.firsts == nil {
		return nil
	}
	p.firsts.mu.Lock()
	defer p.firsts.mu.Unlock()
	all = slices.Sorted(slices.Values(p.firsts.kinds))
	return slices.DeleteFunc(all, func(kind string) bool { return kind == subject.Anonymous && p.SkipAnonymous })
}

// OverrideOf returns the override that applies to a subject now: from Config.Override,
// if the policy is one of [Limiter.Policies], or else from Policy.Override. It does not
// recover their panics.
func (p *Policy) OverrideOf(subject string) (Override, bool) {
	if p.override != nil {
		if o, ok := p.override(p.Name, subject); ok && !o.ended() {
			return o, true
		}
	}
	if p.Override != nil {
		if o, ok := p.Override(subject); ok && !o.ended() {
			return o, true
		}
	}
	return Override{}, false
}

// Override is what is different for one key of a policy.
type Override struct {
	// Limit is the key's limit; [gcra.Unlimited] means that the policy does not limit the key.
	// A zero Limit without Banned is a mistake: the key has the limit that the policy has
	// without an Override.
	Limit gcra.Limit

	// Name is what package inspect calls the override; it may be empty.
	Name string

	// Banned denies all requests of the key to which the policy applies, with Config.BanStatus
	// and, if a wait helps, Retry-After. A request that is denied so is charged to no
	// policy of the limiter. A Shadow bans nobody.
	Banned bool

	// Until is when the Override ends, by this server's clock: it does not apply from
	// then on. The zero time.Time, and not Unix 0, means never.
	Until time.Time
}

// ended reports whether the Override does not apply any more.
func (o *Override) ended() bool { return !o.Until.IsZero() && !time.Now().Before(o.Until) }

const (
	maxName      = 64
	maxPolicies  = 256  // most that redisstore.Store takes at once
	maxDebt      = 1e14 // as the largest quota
	maxInstances = 1_000_000
)

// New returns a Limiter for the policies. Its error joins the mistakes that it finds
// ([errors.Join]); one in a policy is a [*FieldError].
func New(cfg Config, policies ...Policy) (*Limiter, error) {
	l := &Limiter{cfg: cfg, local: local(cfg.Store, cfg.Instances), log: diag.Log{Logger: cfg.Logger}}
	ps, errs := l.compile(policies)
	if errs = append(cfg.check(l.local), errs...); len(errs) > 0 {
		return nil, errors.Join(errs...)
	}

	l.cfg.Headers = cmp.Or(cfg.Headers, HeadersDraft6)
	l.cfg.BanStatus = cmp.Or(cfg.BanStatus, http.StatusTooManyRequests)
	l.observers.Store(new([]observer))
	l.Observe(cfg.Observe)
	l.policies.Store(ps)
	l.checkSharedNames()
	l.publish()
	return l, nil
}

// Must returns v, such as a Limiter, and panics if err is not nil or if v is nil.
//
//	limiter := middleware.Must(middleware.New(cfg, policies...))
func Must[T any](v T, err error) T {
	if err == nil && iface.IsNil(v) {
		err = fmt.Errorf("ratelimit: the %v is nil; want one from New", reflect.TypeFor[T]())
	}
	if err != nil {
		panic(err)
	}
	return v
}

func (cfg *Config) check(local gcra.Store) (errs []error) {
	if iface.IsNil(cfg.Store) {
		errs = append(errs, errors.New("ratelimit: Store is nil; want gcra.NewMemory, redisstore.New or your own"))
	}
	if iface.IsNil(local) {
		errs = append(errs, fmt.Errorf("ratelimit: Store is a %T whose Local returns nil; want a store to use while it fails, or no method Local", cfg.Store))
	}

	if cfg.BanStatus != 0 && cfg.BanStatus != http.StatusTooManyRequests && cfg.BanStatus != http.StatusForbidden {
		errs = append(errs, fmt.Errorf("ratelimit: BanStatus is %d; want 429 (which 0 means too) or 403", cfg.BanStatus))
	}

	if cfg.Headers&^headersKnown != 0 || cfg.Headers&HeadersNone != 0 && cfg.Headers != HeadersNone {
		errs = append(errs, fmt.Errorf("ratelimit: Headers is %v; want HeadersDraft6, HeadersDraft11, HeadersXRateLimit joined by |, or HeadersNone alone", cfg.Headers))
	}
	if cfg.Instances < 0 || cfg.Instances > maxInstances {
		errs = append(errs, fmt.Errorf("ratelimit: Instances is %d; want 0 (counted by the store) to %d", cfg.Instances, maxInstances))
	}
	return errs
}

// local returns the store that FailLocal uses.
func local(s gcra.Store, instances int) gcra.Store {
	if s, ok := s.(gcra.LocalStore); ok && !iface.IsNil(s) {
		return s.Local(max(instances, 0)) // New returns an error about others
	}
	return share.Store{Store: gcra.NewMemory(), Instances: instances}
}

// checkLimit returns nil for a valid limit that the store keeps.
func checkLimit(store gcra.Store, l gcra.Limit) error {
	if s, ok := store.(iface.LimitChecker); ok && !iface.IsNil(s) {
		if err := s.CheckLimit(l); err != nil {
			return err
		}
	}
	return l.Validate()
}

// compile checks the policies and prepares all that requests have in common. It
// returns an error for each mistake.
func (l *Limiter) compile(list []Policy) (_ *policies, errs []error) {
	if len(list) == 0 {
		errs = append(errs, errors.New("ratelimit: no policies; want at least one"))
	}
	if len(list) > maxPolicies {
		return nil, []error{fmt.Errorf("ratelimit: %d policies; want at most %d", len(list), maxPolicies)}
	}

	ps := &policies{limiter: l, routes: routes.Table{Log: &l.log}}
	// A name that is missing is a mistake of its own, and does not count as a name of two policies.
	seen := map[string]bool{}
	for i := range list {
		p := &policy{Policy: list[i], limiter: l}
		p.override, p.firsts = l.cfg.Override, new(firstRequests)
		var report reporter = func(field, format string, args ...any) {
			errs = append(errs, &FieldError{Index: i, Name: p.Name, Field: field, Err: fmt.Errorf(format, args...)})
		}

		if seen[p.Name] && p.Name != "" {
			report("Name", "is taken by an earlier policy; want unique names")
		}
		seen[p.Name] = true

		p.compile(report)
		for i, err := range ps.routes.Add(p.Name, p.Routes) {
			if err != nil {
				report(fmt.Sprintf("Routes[%d]", i), "is %.80q: %w", p.Routes[i], err)
			}
		}
		ps.list = append(ps.list, p)
	}
	if len(errs) > 0 {
		return nil, errs
	}

	// Only now: an invalid limit has no text.
	for _, p := range ps.list {
		p.text = newPolicyText(p.Name, p.Limit)
	}
	return ps, nil
}

// reporter reports a mistake in a field of a policy.
type reporter func(field, format string, args ...any)

// compile reports the policy's mistakes, except in its Routes.
func (p *policy) compile(report reporter) {
	switch {
	case p.Name == "":
		report("Name", `is missing; want one such as "client", as the store keeps the policy's state under it`)
	case len(p.Name) > maxName:
		report("Name", "has %d characters; want at most %d", len(p.Name), maxName)
	case strings.ContainsFunc(p.Name, func(r rune) bool { return r < ' ' || r > '~' }):
		report("Name", "is %q; want printable ASCII", p.Name)
	}

	if p.Key == nil {
		report("Key", "is nil; want one of package keyfunc or your own")
	}
	p.checkLimits(p.limiter.cfg.Store, report)

	if p.MaxDelay < 0 || p.MaxDelay > gcra.MaxDelay {
		report("MaxDelay", "is %v; want 0 (no delay) to %v", p.MaxDelay, gcra.MaxDelay)
	}
	if p.OnFailure > FailClosed {
		report("OnFailure", "is %d; want FailLocal, FailOpen or FailClosed", p.OnFailure)
	}
}

// checkLimits reports mistakes of Limit and what depends on it.
func (p *Policy) checkLimits(store gcra.Store, report reporter) {
	if p.MaxDebt < 0 || p.MaxDebt > maxDebt {
		report("MaxDebt", "is %d; want 0 (none) to %d", p.MaxDebt, int64(maxDebt))
		p.MaxDebt = 0 // what it would make of the limit is no mistake of its own
	}

	if len(p.Plans) > 0 && p.LimitFor == nil {
		report("Plans", "is set, and LimitFor is nil; want LimitFor, which returns the limit of a request")
	}
	for _, name := range slices.Sorted(maps.Keys(p.Plans)) {
		if l := p.Plans[name]; l != gcra.Unlimited() {
			if err := checkLimit(store, l); err != nil {
				report(fmt.Sprintf("Plans[%.80q]", name), "is %v: %w", l, err)
			}
		}
	}

	// Other limits of LimitFor are checked when it returns them.
	if p.Limit == (gcra.Limit{}) {
		if p.LimitFor == nil {
			report("Limit", "is missing; want one such as gcra.PerMinute(100), or LimitFor")
		}
		return
	}
	if field, err := p.checkLimit(store, p.Limit); err != nil {
		report(field, "%w", err)
	}
	if p.Limit.IsQuota() && p.MaxDelay > 0 {
		report("MaxDelay", "is %v; want 0, as %v is a quota, which denies until its period ends", p.MaxDelay, p.Limit)
	}
}

// checkLimit returns why the store cannot keep the buckets of a limit of this policy, and the field whose
// mistake that is.
func (p *Policy) checkLimit(store gcra.Store, l gcra.Limit) (field string, err error) {
	if err := checkLimit(store, l); err != nil {
		return "Limit", fmt.Errorf("is %v: %w", l, err)
	}
	if p.MaxDebt == 0 {
		return "", nil
	}

	wider := l.WithBurst(l.Capacity() + p.MaxDebt)
	if l.IsQuota() {
		wider = gcra.Quota(l.Count+p.MaxDebt, l.Calendar())
	}
	if err := checkLimit(store, wider); err != nil {
		return "MaxDebt", fmt.Errorf("is %d, which makes %v of %v: %w", p.MaxDebt, wider, l, err)
	}
	return "", nil
}
