package middleware

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Reset fills the bucket that a subject has in the policy of that name, in the
// store and in the state of this server that [FailLocal] decides on. The subject
// is what the policy's Key returns, such as "ip:192.0.2.7". What it means for
// requests that are held back, and when other servers notice, is as for
// [gcra.Reset]; their own state for outages stays.
//
// It returns an error if no policy has the name, and what the store returns: the
// state of this server is then filled all the same. A policy with LimitFor and
// no Limit is an error too, because without a request its limit is unknown: call
// gcra.Reset with it. Of a policy that has both, Reset uses Limit, which makes no
// difference to the stores of package gcra.
func (l *Limiter) Reset(ctx context.Context, subject, policy string) error {
	policies := l.Policies()
	i := slices.IndexFunc(policies, func(p Policy) bool { return p.Name == policy })
	if i < 0 {
		names := make([]string, len(policies))
		for k := range policies {
			names[k] = policies[k].Name
		}
		return fmt.Errorf("ratelimit: reset: policy is %q; want one of %s", clip(policy), strings.Join(names, ", "))
	}
	limit := policies[i].Limit
	if limit == (gcra.Limit{}) {
		return fmt.Errorf("ratelimit: reset: policy %s has LimitFor and no Limit; want a Limit too, or gcra.Reset with the subject's limit", policy)
	}
	var errs []error
	for _, s := range []gcra.Store{l.store, l.local} {
		if err := guard(func() error { return gcra.Reset(ctx, s, subject, policy, limit) }); err != nil {
			errs = append(errs, fmt.Errorf("ratelimit: reset: %w", err))
		}
	}
	return errors.Join(errs...)
}
