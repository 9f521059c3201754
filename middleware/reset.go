package middleware

import (
	"context"
	"errors"
	"fmt"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// Reset fills the bucket of a subject in the named policy, in the store and in this
// server's own state for [FailLocal]. The subject is what the policy's Key returns, such
// as "ip:192.0.2.7". Other servers may deny for a moment more, see [gcra.Reset]; their own
// state for FailLocal stays. If the store fails, Reset returns its error, but fills the
// bucket in this server's state, unless ctx has ended.
//
// Reset uses the limit of the subject's Override if there is one, otherwise Limit and Plans.
// In gcra.Memory and redisstore.Store a rate's bucket is filled by any rate, and a quota's by
// a quota of its calendar. So if LimitFor returns quotas of calendars that Plans does not have,
// call gcra.Reset with each. A policy with LimitFor alone is an error.
func (l *Limiter) Reset(ctx context.Context, subject, name string) error {
	p, err := l.policies.Load().named(name)
	if err != nil {
		return fmt.Errorf("ratelimit: reset: %w", err)
	}

	limits := p.Limits()
	err = safely(func() error {
		if o, ok := p.OverrideOf(subject); ok && o.Limit != (gcra.Limit{}) && o.Limit != gcra.Unlimited() {
			limits = []gcra.Limit{o.Limit}
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ratelimit: reset: Override of policy %s: %w", name, err)
	}
	if len(limits) == 0 {
		return fmt.Errorf("ratelimit: reset: policy %s has LimitFor, and neither Limit nor Plans; want one of these, or gcra.Reset with the subject's limit", name)
	}

	// All, also after an error: each store keeps a bucket for each calendar, and any may deny.
	for _, store := range []gcra.Store{l.cfg.Store, l.local} {
		for _, limit := range limits {
			if failed := safely(func() error { return gcra.Reset(ctx, store, p.Charge(subject, limit)) }); failed != nil {
				err = errors.Join(err, fmt.Errorf("ratelimit: reset: %w", failed))
			}
		}
	}
	return err
}
