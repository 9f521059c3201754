package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
)

// policyFailed logs that a function of a policy failed, and what becomes of the
// request.
func (l *Limiter) policyFailed(r *http.Request, failed *policyError, w source) {
	if errors.Is(failed.cause, context.Canceled) && r.Context().Err() != nil {
		return // the client has gone
	}
	args := []any{"policy", failed.policy, "function", failed.function, "requests", w.consequence(failed.function)}
	l.log.Report(diag.PolicyFailed, failed.policy+" "+failed.function,
		"a policy cannot be decided, because its "+failed.function+" fails", withError(args, failed.cause)...)
}

// storeFailed logs that the store s failed, unless s has, and what becomes of
// the request.
func (l *Limiter) storeFailed(v *requestState, s gcra.Store, err error, requests string) {
	if errors.Is(err, context.Canceled) && v.Err() != nil {
		return // the client has gone, and the store looks at the request's own context
	}
	var logs interface{ Logged() bool }
	if errors.As(err, &logs) && logs.Logged() {
		return
	}
	args := []any{"store", fmt.Sprintf("%T", s), "requests", requests}
	l.log.Report(diag.StoreFailed, requests, "the store fails", withError(args, err)...)
}

// consequences are those of a failed store for a request, in a policy each.
func (v *requestState) consequences() string {
	var all []string
	for i := range v.entries {
		if c := v.entries[i].source.consequence("Store"); !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return strings.Join(all, "; ")
}

// consequence says what becomes of requests that go way w since the function,
// or "Store", has failed.
func (w source) consequence(function string) string {
	switch {
	case w == sourceOpen:
		return "let pass"
	case w == sourceClosed:
		return "denied with 503"
	case function == "Store":
		return "counted by this server alone, with its share of the limit"
	case function == "Cost":
		return "charged the whole burst, with this server's share of the limit"
	}
	return "counted in one shared bucket, with this server's share of the limit"
}

// withError adds the error's attributes, with the stack if it is a panic.
func withError(args []any, err error) []any {
	args = append(args, "error", clipTo(400, err.Error()))
	var p *panicError
	if errors.As(err, &p) {
		args = append(args, "stack", p.stack)
	}
	return args
}

// Notice logs what a key function found wrong; see package notice. There is one
// line for all policies, because they often have one key function.
func (v *requestState) Notice(code diag.Code, text string, args ...any) {
	e := &v.entries[len(v.entries)-1]
	switch code {
	case diag.KeyBeforeAuth:
		e.key = noUser
	case diag.RouteUnknown:
		e.key = noRoute
	default:
		e.key = explained
		v.policies.limiter.log.Report(code, "", text, append([]any{"policy", v.policies.list[e.policy].Name}, args...)...)
	}
}

// asking reports whether the visit's policies are being asked about the request.
func (v *requestState) evaluating() bool {
	return v.policies != nil && v.decision.state == nil && len(v.entries) > 0
}

// chargedBefore logs if a limiter in front, which has decided about the request,
// has charged it to the same bucket: the same limiter, or one made alike.
func (v *requestState) checkTwice(outer *requestState) {
	l := v.policies.limiter
	for ; outer != nil; outer = stateIn(outer.Context) {
		if outer.phase.Load() != settled || !sameStore(outer.policies.limiter.store, l.store) {
			continue
		}
		if name := v.sameCharge(outer); name != "" {
			l.log.Report(diag.LimiterTwice, "", "a request is charged to one bucket twice: mount the limiter once, or give the policies of the two limiters different names", "policy", name)
			return
		}
	}
}

// sameCharge is the name of a policy that both visits charge, or "".
func (v *requestState) sameCharge(outer *requestState) string {
	outer.mu.Lock()
	defer outer.mu.Unlock() // of Spend, which adds to Cost
	for i := range v.charges {
		for j := range outer.charges {
			if v.charges[i].Policy == outer.charges[j].Policy && v.charges[i].Subject == outer.charges[j].Subject && v.charges[i].Cost > 0 && outer.charges[j].Cost > 0 {
				return v.charges[i].Policy
			}
		}
	}
	return ""
}
