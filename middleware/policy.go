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

// policy is a compiled Policy.
type policy struct {
	Policy
	limiter *Limiter
	routes  []*pattern.Pattern
	text    policyText
	first   atomic.Pointer[firstRequests] // nil when they have passed
}

// evaluate reports whether the policy applies to the request, and fills the
// charge if so. After an error the charge is as strict as what is known allows:
// anonymous without a key, the whole burst without a cost. It has no limit if
// that is unknown.
//
// A panic in one of the application's functions is an error like any other, so
// that no request can escape the other policies by causing it.
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
		c.Cost = c.Limit.Capacity() // if Cost fails, as a client may have caused it
		cost := p.Cost(r)
		if cost < 0 {
			return true, &policyError{p.Name, function, fmt.Errorf("cost of the request is %d; want 0 or more", cost)}
		}
		c.Cost = int64(cost)
	}
	return true, nil
}

// policyError is the error of a policy that could not be evaluated.
type policyError struct {
	policy   string
	function string // field of the Policy that failed: "Key"
	cause    error
}

func (e *policyError) Error() string { return "ratelimit: policy " + e.policy + ": " + e.cause.Error() }
func (e *policyError) Unwrap() error { return e.cause }

// safely calls f and returns its error, or its panic as an error.
func safely(f func() error) (err error) {
	defer func() {
		if p := recover(); p != nil {
			err = recovered(p)
		}
	}()
	return f()
}

// recovered returns an error for v, the value of recover. Call it only in the
// deferred function itself: the stack begins at the panic.
func recovered(v any) error {
	err, ok := v.(error)
	if !ok {
		err = errors.New(fmt.Sprint(v))
	}
	return &panicError{err, callers()}
}

// panicError is a panic of a policy's function or of a store.
type panicError struct {
	value error
	stack stack
}

func (e *panicError) Error() string { return "panic: " + e.value.Error() }
func (e *panicError) Unwrap() error { return e.value }

// stack is where a panic happened. It becomes text only if it is logged.
type stack []uintptr

func callers() stack {
	pcs := make([]uintptr, 64)
	return pcs[:runtime.Callers(4, pcs)] // without Callers, callers, recovered and the deferred function
}

// LogValue returns the stack as a panic prints it.
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
