package buckets

// TakeFast decides, without a lock, about a charge that is an admission by itself. It
// reports false if Apply has to: the bucket is not known or is busy.
func (s *Set) TakeFast(o *Charge) (done bool) {
	e := s.shards[s.Shard(o.Hash)].find(o.Hash)
	if e == nil {
		return false
	}

	base := o.Base(s.clock, s.clock.Now())
	const tries = 16 // others may win every time; under the lock no goroutine starves
	for range tries {
		tat := e.tat.Load()
		if tat == locked {
			return false
		}

		if tat-base > o.Top {
			now := s.clock.Now() // rule 3 of Set
			base = o.baseOf(s.clock, now, s.clock.Calendar(now), tat)
		}

		if to := o.step(tat, base); to == tat || e.tat.CompareAndSwap(tat, to) {
			return true
		}
	}
	return false
}
