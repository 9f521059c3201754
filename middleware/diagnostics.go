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
	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// policyFailed logs that a function of a policy failed, and what happens to the
// request.
func (l *Limiter) policyFailed(r *http.Request, failed *policyError, from source) {
	if errors.Is(failed.cause, context.Canceled) && r.Context().Err() != nil {
		return // the client has gone
	}
	args := []any{"policy", failed.policy, "function", failed.function, "requests", from.consequence(failed.function)}
	if errors.Is(failed.cause, errNoLimit) {
		l.log.Report(diag.LimitUnset, failed.policy, "a policy cannot be decided, because the limit of a plan is missing", withError(args, failed.cause)...)
		return
	}
	l.log.Report(diag.PolicyFailed, failed.policy+" "+failed.function,
		"a policy cannot be decided, because its "+failed.function+" fails", withError(args, failed.cause)...)
}

// storeFailed logs that the store failed, unless it logs by itself, and what
// happens to the requests.
func (l *Limiter) storeFailed(s *requestState, store gcra.Store, err error, requests string) {
	if errors.Is(err, context.Canceled) && s.Err() != nil {
		return // the client has gone, and the store uses the request's own context
	}
	var logged gcra.LoggedError
	if errors.As(err, &logged) && logged.Logged() {
		return
	}
	args := []any{"store", fmt.Sprintf("%T", store), "requests", requests}
	l.log.Report(diag.StoreFailed, requests, "the store fails", withError(args, err)...)
}

// consequences says what happens to the request because the store failed: the
// consequences for its policies, each once.
func consequences(s *requestState) string {
	var all []string
	for i := range s.entries {
		if from := s.entries[i].source; from == sourceBan {
			continue
		} else if c := from.consequence("Store"); !slices.Contains(all, c) {
			all = append(all, c)
		}
	}
	return strings.Join(all, "; ")
}

// consequence says what happens to requests with this source because the function,
// or "Store", failed.
func (from source) consequence(function string) string {
	switch {
	case from == sourceOpen:
		return "let pass"
	case from == sourceClosed:
		return "denied with 503"
	case function == "Store", function == "LimitFor", function == "Override":
		return "counted by this server alone, with its share of the limit"
	case function == "Cost":
		return "charged the whole burst, with this server's share of the limit"
	}
	return "counted in one shared bucket, with this server's share of the limit"
}

// withError appends the error's attributes, with the stack if it is a panic.
func withError(args []any, err error) []any {
	args = append(args, "error", fmt.Sprintf("%.400v", err))
	var p *panicError
	if errors.As(err, &p) {
		args = append(args, "stack", p.stack)
	}
	return args
}

// noticeReceiver is a requestState whose policies are being evaluated, as a
// [notice.Receiver].
type noticeReceiver requestState

// Notice logs what a key function reports, in one line for all policies, which
// often have the same key function. It leaves a missing user or route to the
// check of the policy's first requests.
func (n *noticeReceiver) Notice(code diag.Code, text string, args ...any) {
	e := &n.entries[len(n.entries)-1]
	switch code {
	case diag.KeyBeforeAuth:
		e.key = noUser
	case diag.RouteUnknown:
		e.key = noRoute
	default:
		e.key = explained
		n.policies.limiter.log.Report(code, "", text, append([]any{"policy", n.policies.list[e.policy].Name}, args...)...)
	}
}

// checkCosts logs requests that can never pass.
func (l *Limiter) checkCosts(s *requestState) {
	for i := range s.charges {
		if c := &s.charges[i]; c.Result.Never && s.entries[i].source != sourceBan {
			l.log.Report(diag.CostAboveBurst, c.Policy, "a request costs more than its bucket holds when full, so it can never pass: raise the limit's burst, or lower the cost",
				"policy", c.Policy, "cost", c.Cost, "limit", c.Limit.String())
		}
	}
}

// checkTwice logs if a limiter further out has charged the request to the same
// bucket: the same limiter, or one with the same policy on the same store.
func (l *Limiter) checkTwice(s, outer *requestState) {
	for ; outer != nil; outer = stateIn(outer.Context) {
		if outer.phase.Load() != settled || !iface.Same(outer.policies.limiter.store, l.store) {
			continue
		}
		if name := sharedCharge(s, outer); name != "" {
			l.log.Report(diag.LimiterTwice, "", "a request is charged to one bucket twice: mount the limiter once, or give the policies of the two limiters different names", "policy", name)
			return
		}
	}
}

// sharedCharge returns the name of a policy that charges the same bucket in both
// states, or "".
func sharedCharge(s, outer *requestState) string {
	outer.mu.Lock()
	defer outer.mu.Unlock() // Spend adds to Taken
	for i := range s.charges {
		for j := range outer.charges {
			a, b := &s.charges[i], &outer.charges[j]
			if a.Policy == b.Policy && a.Subject == b.Subject && a.Limit.Calendar() == b.Limit.Calendar() && !a.Peek && b.Result.Taken > 0 {
				return a.Policy
			}
		}
	}
	return ""
}
