package httpclient

import (
	"cmp"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// Config says how a [Transport] works. Use keyed literals: fields may be added.
type Config struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Store holds the limits' state; processes share it through Redis. Required with
	// Policies. If it returns an error, the try is not sent and RoundTrip's error
	// wraps that one. Give a store in Redis a Timeout of some seconds here; its
	// default is for servers.
	Store gcra.Store

	// Policies are the limits; without any, a Transport acts only on denials.
	Policies []Policy

	// Margin lengthens Per of each limit by this fraction, since some requests take
	// longer to arrive than others: with 0.01, 5 seconds by 50 ms. 0 means 0.01; a
	// negative margin is none. It must be the same in all processes.
	Margin float64

	// MaxTries is how often a request is passed to Base at most; 0 means 5.
	MaxTries int

	// MaxWait is how long after the call of RoundTrip a try may begin (a late turn a little
	// later); 0 means a minute. If the request would have to wait longer, RoundTrip returns,
	// usually at once. A deadline of the request's context counts too.
	MaxWait time.Duration

	// Replay, if set, reports whether a denied request is safe to repeat although its
	// method is not idempotent and it has no Idempotency-Key: for a partner that
	// promises to have done nothing for a request that it denies. A body still needs
	// GetBody.
	Replay func(*http.Request) bool

	// Denied, if set, gets each response with what its status and fields say, and returns what
	// counts: for partners that deny with another status, such as AWS' 400 ThrottlingException, that
	// tell a wait in their own way, or whose denial is final. If it makes a denial of another
	// response and sets no Wait, the fields count as those of a 429. If it reads the body, it must
	// leave a Body with the same bytes. An [Adaptive] as Base uses it unless it has its own.
	Denied func(resp *http.Response, told Denial) Denial

	// Observe, if set, is called before RoundTrip returns. It must not block or change the
	// request.
	Observe func(*http.Request, Event)
}

// Policy is one limit on one kind of key. Use keyed literals: fields may be added.
//
// If the server has a strict or fixed window, the sum of Burst and Count must be at
// most the server's count (5 and 20 for 25); with a store of package slidinglog, give
// the server's own count and no Burst.
type Policy struct {
	// Name is part of errors and store keys: up to 64 printable ASCII characters,
	// unique within the Transport. A single policy may omit it and is called
	// "default". If the store also limits inbound requests, no policy there with the
	// same kind of key may have this name.
	Name string

	// Key says what the limit counts by, such as [ByHost], [ByCredential], [ByHeader],
	// keyfunc.Const for a partner with several hosts, or your own, such as one that
	// reads a tenant from the request's context. Requests with an empty key share one
	// bucket. On an error the try is not sent. Required.
	Key func(*http.Request) (string, error)

	// Limit is the limit of each key, before Margin. Required.
	Limit gcra.Limit

	// MaxDelay is the longest wait for a turn under this policy, as in [turns.Wait]. It must
	// be the same in all processes. 0 means as long as MaxWait and the context allow.
	MaxDelay time.Duration

	// Cost returns how many units a try takes; nil means 1. At 0 it does not wait for this
	// policy; a negative cost is an error.
	Cost func(*http.Request) int64
}

// Event is the outcome of a request.
type Event struct {
	Tries  int           // how often the request was passed to Base
	Waited time.Duration // in total before these tries; not what Base waits
	Status int           // of the response that RoundTrip returns; 0 with an error
	Reason Reason        // why RoundTrip returns
	Err    error         // that RoundTrip returns
}

// Reason is why RoundTrip returns, for example as a metric's label.
type Reason string

// The reasons. With all but Answered and Failed, RoundTrip returns the denial, or
// an error that is [turns.ErrWouldWait].
const (
	Answered      Reason = "answered"       // the response is not a denial
	TooLong       Reason = "too long"       // the next try would begin after MaxWait, MaxDelay or the context's deadline, or no wait helps
	TooManyTries  Reason = "too many tries" // MaxTries were denied; of an Adaptive, its one try
	NotReplayable Reason = "not replayable" // denied, and not safe to send again
	Failed        Reason = "failed"         // any other error, such as of Base, the store, a Key or the context
)

const (
	defaultMargin = 0.01
	defaultTries  = 5
	defaultWait   = time.Minute
	maxName       = 64 // as of middleware.Policy
)

// New returns a Transport, or an error with the mistakes in the configuration.
func New(cfg Config) (*Transport, error) {
	cfg.Policies = slices.Clone(cfg.Policies)
	if err := errors.Join(cfg.check()...); err != nil {
		return nil, err
	}

	cfg.Base = cmp.Or(cfg.Base, http.DefaultTransport)
	cfg.MaxTries, cfg.MaxWait = cmp.Or(cfg.MaxTries, defaultTries), cmp.Or(cfg.MaxWait, defaultWait)
	for i := range cfg.Policies {
		cfg.Policies[i].Limit = cfg.withMargin(cfg.Policies[i].Limit)
	}

	adaptive, _ := cfg.Base.(*Adaptive)
	return &Transport{cfg: cfg, adaptive: adaptive, pacers: pacers{longest: maxBackoff / 2}}, nil
}

// withMargin returns a limit with a longer Per.
func (cfg *Config) withMargin(l gcra.Limit) gcra.Limit {
	l.Per += time.Duration(max(cmp.Or(cfg.Margin, defaultMargin), 0) * float64(l.Per))
	return l
}

// Must returns t, or panics if err is not nil.
//
//	transport := httpclient.Must(httpclient.New(cfg))
func Must(t *Transport, err error) *Transport {
	if err != nil {
		panic(err)
	}
	return t
}

// check returns the mistakes and names a single policy "default".
func (cfg *Config) check() (errs []error) {
	if len(cfg.Policies) > 0 && iface.IsNil(cfg.Store) {
		errs = append(errs, errors.New("httpclient: Store is nil and there are Policies; want redisstore.New, gcra.NewMemory or your own"))
	}

	if cfg.Base != nil && iface.IsNil(cfg.Base) {
		errs = append(errs, fmt.Errorf("httpclient: Base is a nil %T; want one, or no Base for http.DefaultTransport", cfg.Base))
	} else if a, ok := cfg.Base.(*Adaptive); ok {
		errs = append(errs, a.check())
	}

	marginOK := cfg.Margin < 1 // false for NaN
	if !marginOK {
		errs = append(errs, fmt.Errorf("httpclient: Margin is %v; want less than 1, or 0 for %v", cfg.Margin, defaultMargin))
	}

	if cfg.MaxTries < 0 {
		errs = append(errs, fmt.Errorf("httpclient: MaxTries is %d; want 1 or more, or 0 for %d", cfg.MaxTries, defaultTries))
	}
	if cfg.MaxWait < 0 || cfg.MaxWait > gcra.MaxDelay {
		errs = append(errs, fmt.Errorf("httpclient: MaxWait is %v; want up to %v, or 0 for %v", cfg.MaxWait, gcra.MaxDelay, defaultWait))
	}

	if len(cfg.Policies) == 1 && cfg.Policies[0].Name == "" {
		cfg.Policies[0].Name = "default"
	}

	seen := map[string]bool{}
	for i, p := range cfg.Policies {
		title := fmt.Sprintf("policy %.80q", p.Name)
		if p.Name == "" {
			title = fmt.Sprintf("policy number %d", i+1)
		}

		report := func(format string, args ...any) {
			errs = append(errs, fmt.Errorf("httpclient: %s: "+format, append([]any{title}, args...)...))
		}

		switch {
		case p.Name == "":
			report("Name is missing; want one for each of several policies")
		case len(p.Name) > maxName:
			report("Name has %d characters; want at most %d", len(p.Name), maxName)
		case strings.ContainsFunc(p.Name, func(c rune) bool { return c < ' ' || c > '~' }):
			report("Name is %q; want printable ASCII", p.Name)
		case seen[p.Name]:
			report("Name is taken by an earlier policy; want unique names")
		}
		seen[p.Name] = true

		if p.Key == nil {
			report("Key is nil; want ByHost, ByCredential or your own")
		}

		switch err := p.Limit.Validate(); {
		case err != nil:
			report("Limit is %v: %w", p.Limit, err)
		case p.Limit.IsQuota():
			report("Limit is %v, a quota, which has no queue; want a rate", p.Limit)
		case marginOK:
			if err := cfg.withMargin(p.Limit).Validate(); err != nil {
				report("Limit is %v and too long with a Margin of %v: %w", p.Limit, cmp.Or(cfg.Margin, defaultMargin), err)
			}
		}

		if p.MaxDelay < 0 || p.MaxDelay > gcra.MaxDelay {
			report("MaxDelay is %v; want up to %v, or 0 for as long as MaxWait", p.MaxDelay, gcra.MaxDelay)
		}
	}
	return errs
}
