package httpclient

import (
	"errors"
	"fmt"
	"net/http"
	"reflect"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Config says how a [Transport] works. Use keyed literals: fields may be added.
type Config struct {
	// Base sends the requests; nil means http.DefaultTransport.
	Base http.RoundTripper

	// Store keeps the turns that the processes share. Required when there are
	// Policies. A request whose turn the store cannot tell is not sent, and
	// RoundTrip returns the store's error: who takes turns with others cannot
	// know alone that it is his. A redisstore.Store should have a Timeout of some
	// seconds here, as its default is for servers that cannot wait.
	Store gcra.Store

	// Policies are the limits to keep to. All of them are charged for a request
	// or none is. Without any, a Transport only obeys refusals; then an [Adaptive]
	// as Base sees to it that there are few.
	Policies []Policy

	// MaxTries is how often a request is sent at most, the first time included;
	// 0 means 5, and 1 never sends one again.
	MaxTries int

	// MaxWait is how long after the call of RoundTrip a try may begin; 0 means a
	// minute. What would have to wait longer, for its turn or because the server
	// says so, fails at once. The request's context may be shorter still.
	MaxWait time.Duration

	// Observe is called once for each RoundTrip, before it returns. It must not
	// block, nor change the request.
	Observe func(*http.Request, Event)
}

// Policy is one limit on one kind of key. Two windows are two policies. Use
// keyed literals: fields may be added.
//
// The turns are those of the client. The network may bring two requests closer
// together than they were sent, so a Burst below that of the server's limit is
// what keeps refusals away.
type Policy struct {
	// Name stands in errors and store keys. Up to 64 printable ASCII characters,
	// unique within the Transport; a policy that is alone may leave it out and is
	// called "default". On a store that limits incoming requests too, it must not
	// be the name of a policy there with the same kind of key.
	Name string

	// Key says whose turns they are: [ByHost], [ByCredential], [ByHeader],
	// keyfunc.Const for a partner as a whole whatever hosts it answers on, or your
	// own, such as one that reads a tenant from the request's context. An empty key is nobody
	// in particular: all such requests share one bucket. With an error the request
	// is not sent. Required.
	Key func(*http.Request) (string, error)

	// Limit is how much each key may do. Required.
	Limit gcra.Limit

	// MaxDelay is the longest that this policy lets anybody wait; all processes
	// must agree on it. 0 means as long as MaxWait and the context allow.
	MaxDelay time.Duration

	// Cost is how many units the request takes; nil means 1. With 0 the request
	// waits for nobody and takes nothing; a negative one is an error. It is asked
	// for each try.
	Cost func(*http.Request) int
}

// Event is what became of a request.
type Event struct {
	Tries  int           // how often it was sent: 0 when its turn did not come
	Waited time.Duration // for turns, pauses and between tries, in all
	Status int           // of the response that RoundTrip returns; 0 with an error
	Reason Reason        // why RoundTrip returns
	Err    error         // what RoundTrip returns
}

// Reason is why RoundTrip returns, fit for a metric's label.
type Reason string

// The reasons. All but the first and last come with the refusal itself, or with
// an error that is [gcra.ErrWouldWait].
const (
	Answered      Reason = "answered"       // the response is no refusal
	TooLong       Reason = "too long"       // to wait for the next try would be beyond MaxWait, MaxDelay or the context
	TooManyTries  Reason = "too many tries" // MaxTries were refused
	NotReplayable Reason = "not replayable" // refused, and may not be sent again
	Failed        Reason = "failed"         // with an error of Base, the store, a Key or the context
)

const (
	defaultTries = 5
	defaultWait  = time.Minute
	maxName      = 64
	maxDelay     = 366 * 24 * time.Hour // what a store accepts
)

// New returns a Transport, or an error that joins one for each mistake in the
// configuration ([errors.Join]), naming the policy, the field, the value and
// what would be right.
func New(cfg Config) (*Transport, error) {
	t := &Transport{
		base:     cfg.Base,
		store:    cfg.Store,
		policies: append([]Policy(nil), cfg.Policies...),
		maxTries: cfg.MaxTries,
		maxWait:  cfg.MaxWait,
		observe:  cfg.Observe,
	}
	if t.base == nil {
		t.base = http.DefaultTransport
	}
	if t.maxTries == 0 {
		t.maxTries = defaultTries
	}
	if t.maxWait == 0 {
		t.maxWait = defaultWait
	}
	if err := errors.Join(cfg.check(t.policies)...); err != nil {
		return nil, err
	}
	return t, nil
}

// Must is New for configurations that are written in the program: it panics
// with the error.
//
//	transport := httpclient.Must(httpclient.New(cfg))
func Must(t *Transport, err error) *Transport {
	if err != nil {
		panic(err)
	}
	return t
}

// check finds the mistakes and gives a lone policy its name.
func (cfg *Config) check(policies []Policy) (errs []error) {
	if len(policies) > 0 && isNil(cfg.Store) {
		errs = append(errs, errors.New("httpclient: Store is nil and there are Policies; want redisstore.New, gcra.NewMemory or your own"))
	}
	if cfg.MaxTries < 0 {
		errs = append(errs, fmt.Errorf("httpclient: MaxTries is %d; want 1 or more, or 0 for %d", cfg.MaxTries, defaultTries))
	}
	if cfg.MaxWait < 0 || cfg.MaxWait > maxDelay {
		errs = append(errs, fmt.Errorf("httpclient: MaxWait is %v; want up to %v, or 0 for %v", cfg.MaxWait, maxDelay, defaultWait))
	}
	if len(policies) == 1 && policies[0].Name == "" {
		policies[0].Name = "default"
	}
	seen := map[string]bool{}
	for i, p := range policies {
		title := fmt.Sprintf("policy %q", clip(p.Name))
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
		case !printable(p.Name):
			report("Name is %q; want printable ASCII", p.Name)
		case seen[p.Name]:
			report("Name is taken by an earlier policy; want unique names")
		}
		seen[p.Name] = true
		if p.Key == nil {
			report("Key is nil; want ByHost, ByCredential or your own")
		}
		if err := p.Limit.Validate(); err != nil {
			report("Limit is %v: %w", p.Limit, err)
		}
		if p.MaxDelay < 0 || p.MaxDelay > maxDelay {
			report("MaxDelay is %v; want up to %v, or 0 for as long as MaxWait", p.MaxDelay, maxDelay)
		}
	}
	return errs
}

// isNil sees through an interface that holds a nil pointer.
func isNil(s any) bool {
	v := reflect.ValueOf(s)
	return s == nil || v.Kind() == reflect.Pointer && v.IsNil()
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
func clip(s string) string {
	if len(s) > 80 {
		return s[:80] + "..."
	}
	return s
}
