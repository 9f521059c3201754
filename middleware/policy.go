package middleware

import (
	"errors"
	"fmt"
	"log/slog"
	"net/http"
	"runtime"
	"strings"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/pattern"
)

// policy is a Policy made ready for requests.
type policy struct {
	Policy
	limiter *Limiter
	routes  []*pattern.Pattern
	text    text
	first   atomic.Pointer[firstRequests] // nil once they have passed
}

// ask finds out whether the policy applies to the request, and what it takes
// then. It fills the charge as far as it gets: after an error the charge is the
// stricter guess, and one without a limit if that is what is missing.
//
// The functions that it calls are the application's. A panic in one of them is
// an error like any other, so that it cannot be used to slip past the other
// policies.
func (p *policy) evaluate(r *http.Request, c *gcra.Charge) (applies bool, failed *policyError) {
	function := ""
	defer func() {
		if v := recover(); v != nil {
			applies, failed = true, &policyError{p.Name, function, recovered(v)}
		}
	}()
	*c = gcra.Charge{Policy: p.Name, Limit: p.Limit, Cost: 1, MaxDelay: p.MaxDelay, Shadow: p.Shadow}
	if p.Skip != nil {
		function = "Skip"
		if p.Skip(r) {
			return false, nil
		}
	}
	if p.LimitFor != nil {
		function = "LimitFor"
		limit := p.LimitFor(r)
		if limit == (gcra.Limit{}) {
			p.noteUnlimited(r)
			return false, nil
		}
		if err := limit.Validate(); err != nil {
			return true, &policyError{p.Name, function, fmt.Errorf("limit for the request is %v: %w", limit, err)}
		}
		c.Limit = limit
	}
	function = "Key"
	subject, err := p.Key(r)
	if err != nil {
		return true, &policyError{p.Name, function, err}
	}
	c.Subject = subject
	if p.Cost != nil {
		function = "Cost"
		c.Cost = c.Limit.Capacity() // should it fail: a client may have made it
		cost := p.Cost(r)
		if cost < 0 {
			return true, &policyError{p.Name, function, fmt.Errorf("cost of the request is %d; want 0 or more", cost)}
		}
		c.Cost = int64(cost)
	}
	return true, nil
}

// policyError says which policy could not be decided.
type policyError struct {
	policy   string
	function string // of the policy, that failed
	cause    error
}

func (e *policyError) Error() string { return "ratelimit: policy " + e.policy + ": " + e.cause.Error() }
func (e *policyError) Unwrap() error { return e.cause }

// recovered makes an error of what recover gave, in the deferred function that
// called it.
func recovered(v any) error {
	err, ok := v.(error)
	if !ok {
		err = errors.New(fmt.Sprint(v))
	}
	return &panicError{err, callers()}
}

// panicError is a panic of the application's code, or of a store.
type panicError struct {
	value error
	stack stack
}

func (e *panicError) Error() string { return "panic: " + e.value.Error() }
func (e *panicError) Unwrap() error { return e.value }

// stack is where a panic was. It becomes text only when it is logged.
type stack []uintptr

func callers() stack {
	pcs := make([]uintptr, 64)
	return pcs[:runtime.Callers(4, pcs)] // without Callers, callers, recovered and the deferred function
}

// LogValue is the stack as a panic prints it.
func (s stack) LogValue() slog.Value {
	var b strings.Builder
	frames := runtime.CallersFrames(s)
	for more := len(s) > 0; more; {
		var f runtime.Frame
		f, more = frames.Next()
		fmt.Fprintf(&b, "%s\n\t%s:%d\n", f.Function, f.File, f.Line)
	}
	return slog.StringValue(b.String())
}
