package redisstore

// A level says in ticks how much of a bucket is used; 0 is a full bucket. It grows with
// each grant, and drains from a moment on: of n servers each drains its level at an nth of
// the rate, so together they drain no faster than one bucket refills.
type level struct{ owed, from int64 }

// at is the level at a time.
func (l level) at(now, n int64) int64 {
	if now <= l.from {
		return l.owed
	}
	return max(l.owed-(now-l.from)/n, 0)
}

// add adds ticks. A level of 0 begins to drain at the time given.
func (l *level) add(ticks, now, n, from int64) {
	if l.at(now, n) == 0 {
		*l = level{0, from}
	}
	l.owed += ticks
}

// sub takes ticks, or what there is if that is less, and returns how many.
func (l *level) sub(ticks, now, n int64) int64 {
	ticks = min(max(ticks, 0), l.at(now, n))
	l.owed -= ticks
	return ticks
}

// wait lets a level drain later.
func (l *level) wait(until, now, n int64) {
	if until > now && until > l.from && l.owed > 0 {
		*l = level{l.at(now, n), until}
	}
}

// cut returns the level with what has drained taken off.
func (l level) cut(now, n int64) level { return level{l.at(now, n), max(l.from, now)} }
