package gcra

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// memo remembers what charges of the same policy and limit have in common: most
// programs have a few of these, and working it out again costs as much as the
// rest of a decision.
type memo struct {
	places [16]atomic.Pointer[remembered]
	misses atomic.Uint32
}

type remembered struct {
	policy           string
	limit            Limit
	maxDelay, within time.Duration
	terms
	hash uint64 // of the policy
}

func (r *remembered) of(c *Charge) bool {
	return r != nil && r.limit == c.Limit && r.maxDelay == c.MaxDelay && r.within == c.MaxWait && r.policy == c.Policy
}

// demand checks the charge and converts it, into d, and returns the hash of its
// bucket.
func (m *Memory) demand(c *Charge, refund bool, d *demand) (hash uint64, err error) {
	place := c.place()
	r := m.memo.places[place].Load()
	if !r.of(c) {
		if r = m.memo.places[place^1].Load(); !r.of(c) {
			t, err := c.terms()
			if err != nil {
				return 0, err
			}
			m.remember(c, t, place)
			return m.hash(c.Subject, c.Policy), t.demand(c, refund, d)
		}
	}
	return bucket(maphash.String(m.seed, c.Subject), r.hash), r.demand(c, refund, d)
}

// place is where the charge's terms are remembered, or in the place beside it.
func (c *Charge) place() uint64 {
	l := &c.Limit
	x := uint64(l.Count)*0x9e3779b97f4a7c15 + uint64(l.Per)*0xd6e8feb86659fd93 + uint64(l.Burst)*0xa0761d6478bd642f
	if n := len(c.Policy); n > 0 {
		x += (uint64(n)<<16 | uint64(c.Policy[0])<<8 | uint64(c.Policy[n-1])) * 0xe7037ed1a0b428db
	}
	return x >> 60
}

// remember keeps the charge's terms where there is room, and now and then in the
// place of others: a great many limits, in turn, would otherwise allocate each
// time.
func (m *Memory) remember(c *Charge, t terms, place uint64) {
	if m.memo.places[place].Load() != nil {
		if place ^= 1; m.memo.places[place].Load() != nil && m.memo.misses.Add(1)%1024 != 0 {
			return
		}
	}
	m.memo.places[place].Store(&remembered{c.Policy, c.Limit, c.MaxDelay, c.MaxWait, t, m.policyHash(c.Policy)})
}

// policyHash is multiplied, so that a policy of the same name as the subject does
// not cancel it out.
func (m *Memory) policyHash(policy string) uint64 {
	return maphash.String(m.seed, policy) * 0x9e3779b97f4a7c15
}

// hash is the hash of a bucket.
func (m *Memory) hash(subject, policy string) uint64 {
	return bucket(maphash.String(m.seed, subject), m.policyHash(policy))
}

func bucket(subject, policy uint64) uint64 {
	h := subject ^ policy
	if h < hashes {
		h += hashes
	}
	return h
}
