package redisstore

import (
	"context"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/share"
)

// Local implements [gcra.LocalStore]. It returns a store in this process that
// starts from the last answer of Redis about each key, for decisions while Redis
// does not answer. It grants the share of one of so many instances; 0 means as many as
// this store has counted, and 1 before its first count.
//
// From the first call on, the store counts the stores that limit with this Prefix on
// this Redis. At most every 2 s, beside a batch that takes, it marks itself in the key
// <Prefix>{instances} and gets the number of marks, also those of other stores in this
// process. A new store is counted about 2 s later, and one without such batches no longer
// after 8 s, or three times as long as its last two marks are apart, at most a minute.
// More than 100 stores mark themselves at most 50 times a second together, which takes
// longer, and the largest count is 1000. [Stats] has the count. If it is larger than
// instances for five minutes, a line goes to Logger.
func (s *Store) Local(instances int) gcra.Store {
	s.once.Do(s.init)
	s.counted.use(instances)
	return local{s, instances}
}

// local takes from the TATs of the denial cache.
type local struct {
	store *Store
	n     int // instances; 0 if they are counted
}

func (l local) instances() int {
	if l.n > 0 {
		return l.n
	}
	return l.store.instances()
}

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
	n := l.instances()
	parts := share.Charges(charges, n, refund)
	ops := make([]buckets.Op, len(parts))
	for i := range parts {
		if err := l.store.denials.prepare(&parts[i], refund, &ops[i].Charge); err != nil {
			return false, err
		}
	}
	allowed = l.store.denials.set.Apply(ops)
	for i := range parts {
		ops[i].Result(allowed, (*tat.Result)(&parts[i].Result))
		if ops[i].Periods != nil && !refund {
			parts[i].Period = tat.Time(ops[i].Period)
		}
	}
	share.Results(charges, parts, n)
	return allowed, nil
}
