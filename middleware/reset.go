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
// Reset uses the limit of the subject's Override if there is one, otherwise Limit. In
// gcra.Memory and redisstore.Store that fills the bucket also if LimitFor returns another
// rate, but not if it returns a quota, or one of another calendar. Then call gcra.Reset
// with that limit. A policy with neither limit is an error.
func (l *Limiter) Reset(ctx context.Context, subject, name string) error {
	p, err := l.policies.Load().named(name)
	if err != nil {
		return fmt.Errorf("ratelimit: reset: %w", err)
	}

	// A bucket is found by its limit's calendar, so an override's counts.
	limit := p.Limit
	err = safely(func() error {
		if o, ok := p.OverrideOf(subject); ok && o.Limit != (gcra.Limit{}) && o.Limit != gcra.Unlimited() {
			limit = o.Limit
		}
		return nil
	})
	if err != nil {
		return fmt.Errorf("ratelimit: reset: Override of policy %s: %w", name, err)
	}
	if limit == (gcra.Limit{}) {
		return fmt.Errorf("ratelimit: reset: policy %s has LimitFor and no Limit; want a Limit too, or gcra.Reset with the subject's limit", name)
	}

	// Both, also after an error: each keeps a bucket of its own, and either may deny.
	for _, store := range []gcra.Store{l.cfg.Store, l.local} {
		if failed := safely(func() error { return gcra.Reset(ctx, store, p.Charge(subject, limit)) }); failed != nil {
			err = errors.Join(err, fmt.Errorf("ratelimit: reset: %w", failed))
		}
	}
	return err
}
