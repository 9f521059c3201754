package buckets

import (
	"fmt"
	"hash/maphash"
	"sync/atomic"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// paramsCache keeps what charges of a policy and a limit have in common. Most
// programs have a few of these. Without it a check on a known key takes an eighth
// longer.
type paramsCache struct {
	slots  [64]atomic.Pointer[cachedParams]
	misses atomic.Uint32
}

type cachedParams struct {
	policy string
	terms  tat.Terms
	params tat.LimitParams
	hash   uint64 // of the policy, and of a quota's calendar
	shared uint64 // of these, T and the clamp: of the overflow bucket
}

func (p *cachedParams) match(policy string, terms *tat.Terms) bool {
	return p != nil && p.terms == *terms && p.policy == policy
}

// Prepare checks a charge, or a refund, of a limit, and converts it into o.
func Prepare[L, R any](s *Set, c *tat.Charge[L, R], limit tat.Limit, refund bool, o *Charge) error {
	terms := c.Terms(limit)
	slot := &s.params.slots[slotOf(c.Policy, &limit)]
	p := slot.Load()
	if !p.match(c.Policy, &terms) {
		made, err := s.newParams(c.Policy, terms)
		if err != nil {
			return invalid(c.Policy, err)
		}

		// A great many limits in turn would allocate each time.
		if p == nil || s.params.misses.Add(1)%1024 == 0 {
			kept := made // only what is kept is allocated
			slot.Store(&kept)
		}
		p = &made
	}

	o.Hash, o.shared, o.Periods, o.Shadow = s.bucketHash(c.Subject, p.hash), p.shared, p.params.Periods, c.Shadow
	if refund && o.Periods != nil && !c.Period.IsZero() {
		o.Refunds = tat.At(c.Period)
	}

	if err := c.Params(&p.params, refund, &o.Params); err != nil {
		return invalid(c.Policy, err)
	}
	return nil
}

func invalid(policy string, err error) error {
	return fmt.Errorf("gcra: charge on policy %.80q: %w", policy, err)
}

func (s *Set) newParams(policy string, terms tat.Terms) (cachedParams, error) {
	params, err := terms.Params()
	if err != nil {
		return cachedParams{}, err
	}
	if params.Periods != nil {
		s.clock.quotas.Store(true)
	}
	hash := s.policyHash(policy, params.Periods)
	emission, top := params.Clamp()
	shared := hash ^ (uint64(emission)*0x9e3779b97f4a7c15 + uint64(top)*0xd6e8feb86659fd93)
	return cachedParams{policy, terms, params, hash, shared}, nil
}

// slotOf is where the parameters are cached.
func slotOf(policy string, l *tat.Limit) uint64 {
	x := uint64(l.Count)*0x9e3779b97f4a7c15 + uint64(l.Per)*0xd6e8feb86659fd93 + uint64(l.Burst)*0xa0761d6478bd642f
	if n := len(policy); n > 0 {
		x += (uint64(n)<<16 | uint64(policy[0])<<8 | uint64(policy[n-1])) * 0xe7037ed1a0b428db
	}
	return x >> 58
}

// policyHash is multiplied, so that a policy of the same name as the subject does
// not cancel it out.
func (s *Set) policyHash(policy string, periods *tat.Periods) uint64 {
	h := maphash.String(s.seed, policy)
	if periods != nil {
		h += maphash.String(s.seed, periods.Suffix) * 0xe7037ed1a0b428db
	}
	return h * 0x9e3779b97f4a7c15
}

// bucketHash is the hash of a bucket.
func (s *Set) bucketHash(subject string, policy uint64) uint64 {
	h := maphash.String(s.seed, subject) ^ policy
	if h < minHash {
		h += minHash
	}
	return h
}
