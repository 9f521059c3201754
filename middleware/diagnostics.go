package middleware

import (
	"context"
	"errors"
	"fmt"
	"net/http"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/iface"
)

// policyFailed logs that a function of a policy failed, and what happens to the
// request.
func (l *Limiter) policyFailed(r *http.Request, policy, function string, err error, from source) {
	if errors.Is(err, context.Canceled) && r.Context().Err() != nil {
		return // the client has gone
	}
	args := []any{"policy", policy, "function", function, "requests", from.consequence(function)}
	l.log.Report(diag.PolicyFailed, policy+" "+function, "a policy cannot be decided, because its "+function+" fails", withError(args, err)...)
}

// storeFailed logs that the store failed, unless it logs by itself, and what
// happens to the requests.
func (l *Limiter) storeFailed(store gcra.Store, err error, requests string) {
	var logged iface.LoggedError
	if errors.As(err, &logged) && logged.Logged() {
		return
	}
	args := []any{"store", fmt.Sprintf("%T", store), "requests", requests}
	l.log.Report(diag.StoreFailed, requests, "the store fails", withError(args, err)...)
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
		args = append(args, "stack", string(p.stack))
	}
	return args
}

// tooExpensive logs a charge that can never pass.
func (l *Limiter) tooExpensive(c *gcra.Charge) {
	l.log.Report(diag.CostAboveBurst, c.Policy, "a request costs more than its bucket holds when full, so it can never pass: raise the limit's burst, or lower the cost",
		"policy", c.Policy, "cost", c.Cost, "limit", c.Limit.String())
}

// reportTwice logs that a policy charges a bucket that an outer limiter has charged: the same
// limiter, or one with the same policy on the same store.
func (l *Limiter) reportTwice(a *admission) {
	for outer := a.outer; outer != nil; outer = outer.outer {
		if !iface.Same(l.cfg.Store, outer.policies.limiter.cfg.Store) {
			continue
		}
		for i := range a.charges {
			for j := range outer.charges {
				if c := &a.charges[i]; sameBucket(c, &outer.charges[j]) && !c.Peek && !outer.charges[j].Peek {
					l.log.Report(diag.LimiterTwice, "", "a request is charged to one bucket twice: mount the limiter once, or give the policies of the two limiters different names", "policy", c.Policy)
				}
			}
		}
	}
}

func sameBucket(a, b *gcra.Charge) bool {
	return a.Policy == b.Policy && a.Subject == b.Subject && a.Limit.Calendar() == b.Limit.Calendar()
}
