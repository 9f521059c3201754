package gcra

import (
	"context"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/buckets"
	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// Memory is a [Store] in this process. [NewMemory] makes one.
//
// It holds at most [MemoryConfig].Capacity keys, of about 20 to 64 bytes each once there are many, keeps no
// goroutine and needs no Close. A key whose bucket is full equals a key that was never
// seen, so it is dropped when others need the room. When nearly all buckets are not full, new
// keys may share one bucket for each policy and limit, where a late charge makes no debt.
//
// Keys are kept as 64-bit hashes under a random seed: two given keys have the
// same with a probability of about 2^-64.
type Memory struct{ set *buckets.Set }

// MemoryConfig is the set-up of a [Memory]. The zero value is the common choice.
type MemoryConfig struct {
	// Capacity is the most keys held, without the shared buckets; 0 means 1 << 20.
	Capacity int

	// Now is the clock; nil means a monotonic clock, and for the periods of quotas
	// the wall clock.
	Now func() time.Time
}

// NewMemory returns an empty Memory; without an argument it has the zero MemoryConfig.
// Give it at most one; of several the last counts.
func NewMemory(cfg ...MemoryConfig) *Memory {
	var c MemoryConfig
	if len(cfg) > 0 {
		c = cfg[len(cfg)-1]
	}
	return &Memory{buckets.New(c.Capacity, buckets.NewClock(c.Now), false)}
}

// Take implements [Store].
func (m *Memory) Take(ctx context.Context, charges []Charge) (allowed bool, err error) {
	return m.apply(ctx, charges, false)
}

// Refund implements [Store]. A bucket that keys share gets nothing back.
func (m *Memory) Refund(ctx context.Context, charges []Charge) error {
	_, err := m.apply(ctx, charges, true)
	return err
}

func (m *Memory) apply(ctx context.Context, charges []Charge, refund bool) (allowed bool, err error) {
	if err := ctx.Err(); err != nil {
		return false, err
	}

	// One charge on a bucket that is known takes no lock.
	if len(charges) == 1 {
		var o buckets.Charge
		if err := charges[0].prepare(m.set, refund, &o); err != nil {
			return false, err
		}
		if m.set.TakeFast(&o) {
			allowed = o.Shadow || o.Admits(o.Ahead)
			charges[0].setResult(&o, allowed, refund)
			return allowed, nil
		}
	}

	// The others are decided under the locks of their shards.
	var few [4]buckets.Op
	ops := few[:]
	if len(charges) > len(few) {
		ops = make([]buckets.Op, len(charges))
	}
	ops = ops[:len(charges)]

	for i := range charges {
		if err := charges[i].prepare(m.set, refund, &ops[i].Charge); err != nil {
			return false, err
		}
	}

	allowed = m.set.Apply(ops)

	for i := range charges {
		charges[i].setResult(&ops[i].Charge, allowed, refund)
	}
	return allowed, nil
}

// prepare checks a charge and converts it. The pointer is converted, not the charge: tat.Charge has the same fields, so that
// nothing is copied. It is no alias of Charge, as pkg.go.dev would not show the fields.
func (c *Charge) prepare(set *buckets.Set, refund bool, o *buckets.Charge) error {
	return buckets.Prepare(set, (*tat.Charge[Limit, Result])(c), c.Limit.tat(), refund, o)
}

// setResult fills in what Take and Refund say of a charge.
func (c *Charge) setResult(o *buckets.Charge, allowed, refund bool) {
	o.Result(allowed, refund, (*tat.Result)(&c.Result), &c.Period)
}
