package redisstore

import (
	"context"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// Local implements [gcra.LocalStore]. It returns a store in this process that
// starts from the last answer of Redis about each key, for decisions while Redis
// does not answer. Charge it by this process's share of each limit. Redis does not
// learn of these charges.
func (s *Store) Local() gcra.Store {
	s.once.Do(s.init)
	s.counted.use(0)
	return local{s.denials}
}

// local takes from the TATs of the denial cache.
type local struct{ denials *denialCache }

func (l local) Take(ctx context.Context, charges []gcra.Charge) (allowed bool, err error) {
	return l.apply(ctx, charges, false)
}

func (l local) Refund(ctx context.Context, charges []gcra.Charge) error {
	_, err := l.apply(ctx, charges, true)
	return err
}

func (l local) apply(ctx context.Context, charges []gcra.Charge, refund bool) (allowed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}
	ops := make([]buckets.Op, len(charges))
	for i := range charges {
		if err := l.denials.prepare(&charges[i], refund, &ops[i].Charge); err != nil {
			return false, err
		}
	}
	allowed = l.denials.set.Apply(ops)
	for i := range charges {
		ops[i].Result(allowed, (*tat.Result)(&charges[i].Result))
		if ops[i].Periods != nil && !refund {
			charges[i].Period = tat.Time(ops[i].Period)
		}
	}
	return allowed, nil
}
