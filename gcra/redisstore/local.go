package redisstore

import (
	"cmp"
	"context"
	"errors"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/known"
	"github.com/seed-e377111c/ratelimit/gcra/redisstore/internal/outage"
	"github.com/seed-e377111c/ratelimit/internal/diag"
	"github.com/seed-e377111c/ratelimit/internal/share"
)

// Local implements [gcra.LocalStore]. It returns a store in this process for decisions
// while Redis does not answer. A key starts from what this store knows of it. It grants
// one server's share, where instances is the number of servers that share the limits; 0
// means as many as this store has counted, and 1 before its first count.
//
// From the first call on, the store counts the stores with this Prefix in this database of
// Redis, also others in this process: those whose Local was called mark themselves in the
// key <Prefix>{instances} when they take. Under traffic a new store is counted after about
// 2 s, and one that has stopped is no longer counted after about 8 s; with more than
// 100 stores both take longer. The largest count is 1000. [redisstats.Stats] has the count. If
// instances is not 0 and the count is larger for five minutes, a warning is logged.
func (s *Store) Local(instances int) gcra.Store {
	s.counted.use(instances, s.clock.Now())
	return local{s, max(instances, 0)}
}

// local takes from the TATs of the denial cache.
type local struct {
	store *Store
	n     int // instances; 0 if they are counted
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

	// Charge this server's share locally; report the full cost to Redis.
	n := cmp.Or(l.n, int(l.store.counted.count.Load()), 1)
	parts := share.Charges(charges, n, refund)
	ops, whole := make([]buckets.Op, len(parts)), make([]buckets.Charge, len(parts))
	for i := range parts {
		if err := l.store.known.Prepare(&parts[i], refund, &ops[i].Charge); err != nil {
			return false, err
		}
		ordinary := charges[i]
		ordinary.Late = false // or it would not have the clamp of its limit
		if err := l.store.known.Prepare(&ordinary, refund, &whole[i]); err != nil {
			return false, err
		}
		whole[i].Late = charges[i].Late
	}

	// What is unreported may be more than the clamp of the local TAT.
	if !refund && l.store.known.Deny(whole, charges) {
		return false, nil
	}

	now := l.store.clock.Now()
	allowed = l.store.known.Apply(ops)
	for i := range parts {
		known.SetResult(&parts[i], &ops[i].Charge, allowed, refund)
		if !refund {
			whole[i].Period = ops[i].Period
		}
	}
	share.Results(charges, parts, n)

	if refund {
		return allowed, l.refund(ctx, charges, whole, now)
	}
	for i := range ops {
		if o := &ops[i]; allowed && charges[i].Result.Taken > 0 {
			// A late charge may have taken less than it asked for.
			whole[i].Inc = whole[i].Emission * charges[i].Result.Taken
			base := now
			if o.Periods != nil {
				base = l.store.clock.OnScale(o.Period)
			}
			l.store.granted(&charges[i], &whole[i], now, base+o.Ahead, int64(n))
		}
	}
	return allowed, nil
}

// granted records that the local store has granted a charge, to be reported later.
func (s *Store) granted(charge *gcra.Charge, whole *buckets.Charge, now, known, n int64) {
	key := func() string { return s.key(charge, whole) }
	if full := s.reporter.grants.Add(whole, key, now, known, n); !full {
		s.reporter.start()
	} else {
		// Callers do not wait for a slow log.
		go s.log.Report(diag.RedisGrants, "", "this server has granted units alone on more keys than it keeps: what it grants on others is not charged later", "kept", outage.Max)
	}
}

// refund takes local charges from what is unreported. The rest was charged in Redis, so it is refunded there.
func (l local) refund(ctx context.Context, charges []gcra.Charge, whole []buckets.Charge, now int64) error {
	var reported []gcra.Charge
	for i := range charges {
		w := &whole[i]
		rest := l.store.reporter.grants.Refund(w, -w.Inc, now) / w.Emission
		if reset := -w.Inc > w.Top; rest > 0 && !reset {
			c := charges[i]
			c.Cost = rest
			reported = append(reported, c)
		}
	}

	err := l.store.Refund(ctx, reported)
	if errors.Is(err, ErrUnavailable) && l.store.reporter.grants.Units().Reported == 0 {
		return nil // it has drained and was never charged: the first outage has not ended
	}
	return err
}
