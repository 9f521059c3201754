package gcra

import (
	"hash/maphash"
	"sync/atomic"
	"time"
)

// memo remembers what charges of the same policy and limit have in common: most
// programs have a few of these, and working it out again costs as much as the
// rest of a decision.
type memo [8]atomic.Pointer[remembered]

type remembered struct {
	policy           string
	limit            Limit
	maxDelay, within time.Duration
	terms
	hash uint64 // of the policy
}

// demand checks the charge and converts it, into d, and returns the hash of its
// bucket.
func (m *Memory) demand(c *Charge, refund bool, d *demand) (hash uint64, err error) {
	l := &c.Limit
	place := &m.memo[(uint64(l.Count)*0x9e3779b97f4a7c15+uint64(l.Per)*0xd6e8feb86659fd93+uint64(l.Burst))>>61]
	hash = maphash.String(m.seed, c.Subject)
	r := place.Load()
	if r == nil || r.limit != *l || r.maxDelay != c.MaxDelay || r.within != c.Within || r.policy != c.Policy {
		t, err := c.terms()
		if err != nil {
			return 0, err
		}
		fresh := remembered{c.Policy, *l, c.MaxDelay, c.Within, t, m.policyHash(c.Policy)}
		// Now and then, so that a great many limits do not allocate each time.
		if r == nil || hash%64 == 0 {
			kept := fresh
			place.Store(&kept)
		}
		r = &fresh
	}
	return bucket(hash, r.hash), r.demand(c, refund, d)
}

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
