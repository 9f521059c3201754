package buckets

import (
	"hash/maphash"
	"sync/atomic"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// paramsCache keeps what charges of a policy and a limit have in common. Most
// programs have a few of these. Without it a check on a known key takes an eighth
// longer.
type paramsCache struct {
	slots  [16]atomic.Pointer[cachedParams]
	misses atomic.Uint32
}

type cachedParams struct {
	policy            string
	limit             tat.Limit
	maxDelay, maxWait time.Duration
	params            tat.LimitParams
	hash              uint64 // of the policy, and of a quota's calendar
}

func (p *cachedParams) match(c *tat.Charge) bool {
	return p != nil && p.limit == c.Limit && p.maxDelay == c.MaxDelay && p.maxWait == c.MaxWait && p.policy == c.Policy
}

// Prepare checks a charge, or a refund, and converts it into o.
func (s *Set) Prepare(c *tat.Charge, refund bool, o *Charge) error {
	o.Shadow = c.Shadow
	slot := slotOf(c)
	p := s.params.slots[slot].Load()
	if !p.match(c) {
		if p = s.params.slots[slot^1].Load(); !p.match(c) {
			params, err := c.LimitParams()
			if err != nil {
				return err
			}
			if params.Periods != nil {
				s.clock.quotas.Store(true)
			}
			made := cachedParams{c.Policy, c.Limit, c.MaxDelay, c.MaxWait, params, s.policyHash(c.Policy, params.Periods)}
			s.params.keep(made, slot)
			p = &made
		}
	}
	o.Hash, o.policy, o.Periods = s.bucketHash(c.Subject, p.hash), p.hash, p.params.Periods
	if refund && o.Periods != nil && !c.Period.IsZero() {
		o.Refunds = tat.At(c.Period)
	}
	return p.params.Charge(c, refund, &o.Params)
}

// slotOf is where the charge's parameters are cached, or in the slot beside it.
func slotOf(c *tat.Charge) uint64 {
	l := &c.Limit
	x := uint64(l.Count)*0x9e3779b97f4a7c15 + uint64(l.Per)*0xd6e8feb86659fd93 + uint64(l.Burst)*0xa0761d6478bd642f
	if n := len(c.Policy); n > 0 {
		x += (uint64(n)<<16 | uint64(c.Policy[0])<<8 | uint64(c.Policy[n-1])) * 0xe7037ed1a0b428db
	}
	return x >> 60
}

// keep caches parameters where there is room, and otherwise every 1024th time:
// a great many limits in turn would allocate each time.
func (c *paramsCache) keep(p cachedParams, slot uint64) {
	if c.slots[slot].Load() != nil {
		if slot ^= 1; c.slots[slot].Load() != nil && c.misses.Add(1)%1024 != 0 {
			return
		}
	}
	kept := p // only what is kept is allocated
	c.slots[slot].Store(&kept)
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
