package buckets

// TakeFast decides, without a lock, about a charge that is an admission by itself. It
// reports false if Apply has to: the bucket is not known or is busy, or the clock
// has gone back.
func (s *Set) TakeFast(o *Charge) (done bool) {
	t := &s.shards[s.Shard(o.Hash)].table
	e := t.find(o.Hash)
	if e == nil {
		return false
	}
	now := s.clock.Now()
	const tries = 16 // others may win every time; under the lock no goroutine starves
	for range tries {
		tat := e.tat.Load()
		if tat == locked || e.hash.Load() != o.Hash || now < t.reused.Load() {
			return false
		}
		if tat-now > o.Top && o.Inc != 0 {
			now = s.clock.Now() // others may have charged since it was read
		}
		ahead := o.Clamp(tat, now)
		to := tat
		if o.Admits(ahead) && o.Inc != 0 {
			to = now + o.After(ahead)
		} else if o.Takes() {
			to = min(tat, now+o.Top) // as in evaluate
		}
		if to == tat || e.tat.CompareAndSwap(tat, to) {
			o.Ahead = ahead
			return true
		}
	}
	return false
}
