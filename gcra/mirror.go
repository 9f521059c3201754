package gcra

import "time"

// mirror remembers, in this process, how far ahead of now the TATs of Redis
// stood when it last answered, so that what is known to be refused is refused
// without a trip.
//
// It keeps each TAT on the local monotonic clock, measured from before the
// trip: Redis read its clock later, so the true TAT is not earlier. A TAT only
// grows, but for refunds; hence a step on the mirror that refuses would be
// refused by Redis too. A refund by this process empties its place before it
// is sent; whatever else brings a TAT down (a refund or a lower limit elsewhere,
// a flush, a failover, a refund of ours whose answer was lost) is noticed late,
// by at most keep.
//
// It is a [Memory] and bounded like one. While Redis is away, decisions can be
// made on it ([Redis.Local]).
type mirror struct {
	Memory
	keep int64 // ticks for which an answer is believed; negative: not at all
}

func newMirror(keep time.Duration) *mirror {
	m := &mirror{keep: ticksIn(keep)}
	m.locking = true
	m.once.Do(m.init)
	return m
}

// note is what the mirror adds to a TAT: when it was learned and how long the
// trip took. The true TAT is later by the latter at most. 0 stands with a TAT
// that was not learned.
type note int64

// A note holds milliseconds (34 years of them) above 24 bits of microseconds
// (16 s; slower trips are not learned from).
const (
	noteBits  = 24
	ticksInMs = int64(time.Millisecond / tick)
	ticksInUs = int64(time.Microsecond / tick)
)

func newNote(learned, trip int64) (n note, ok bool) {
	us := trip/ticksInUs + 1
	return note(learned/ticksInMs<<noteBits | us), us < 1<<noteBits
}

func (n note) learned() int64 { return int64(n) >> noteBits * ticksInMs }
func (n note) trip() int64    { return int64(n) & (1<<noteBits - 1) * ticksInUs }

// refuse reports whether it is known that the ride would be refused, and then
// fills its answer and results. Buckets that the mirror knows nothing of are
// taken for full.
func (m *mirror) refuse(rd *ride, charges []Charge, now int64) bool {
	if rd.refund || m.keep < 0 {
		return false
	}
	refused := false
	for i := range rd.fares {
		f := &rd.fares[i]
		s := &m.shards[f.hash>>m.shift]
		s.Lock()
		e := s.find(f.hash)
		var tat int64
		if e != nil {
			tat = e.tat.Load()
			f.ahead, f.trip = f.clamp(tat, now), e.note.trip()
		}
		if j := rd.before(i); j >= 0 && !rd.fares[j].shadow && rd.fares[j].admits(rd.fares[j].ahead) {
			f.ahead = min(rd.fares[j].take(rd.fares[j].ahead), f.top)
		}
		// Beyond the clamp, as after a change of limits, Redis has to bring the
		// TAT down: refused here, the bucket would stay as it is.
		if e != nil && tat-now <= f.top && e.note != 0 && now-e.note.learned() <= m.keep {
			refused = refused || !f.shadow && !f.admits(f.ahead)
		}
		s.Unlock()
	}
	if !refused {
		return false
	}
	m.shards[rd.fares[0].hash>>m.shift].refused.Add(1)
	for i := range rd.fares {
		f := &rd.fares[i]
		r := &charges[i].Result
		f.result(f.ahead, false, r)
		trip := time.Duration(f.trip) * tick
		if r.RetryAfter > 0 {
			r.RetryAfter += trip
		}
		if r.ResetAfter > 0 {
			r.ResetAfter += trip
		}
	}
	return true
}

// depart forgets the buckets of a refund that is about to be sent: from now
// until it is back they may be fuller than any answer says.
func (m *mirror) depart(rd *ride) {
	if !rd.refund {
		return
	}
	for i := range rd.fares {
		f := &rd.fares[i]
		s := &m.shards[f.hash>>m.shift]
		s.Lock()
		s.refunds++
		s.set(f.hash, 0, 0)
		s.Unlock()
	}
}

// learn takes over what the answer to a ride tells. sent is the time before
// the trip.
func (m *mirror) learn(rd *ride, sent int64) {
	now := m.now()
	n, ok := newNote(now, now-sent)
	ok = ok && rd.err == nil
	for i := range rd.fares {
		f := &rd.fares[i]
		s := &m.shards[f.hash>>m.shift]
		s.Lock()
		if rd.refund {
			s.refunds--
			s.refunded = now
		} else if ok && s.refunds == 0 && sent >= s.refunded {
			m.keepTAT(s, rd, i, sent, n, now)
		}
		s.Unlock()
	}
}

// keepTAT keeps what the answer to fare i tells.
func (m *mirror) keepTAT(s *shard, rd *ride, i int, sent int64, n note, now int64) {
	f := &rd.fares[i]
	tat := sent + f.ahead
	if rd.taken(f) {
		tat = sent + f.take(f.ahead)
	} else if rd.before(i) >= 0 {
		return // tells what an earlier fare would have made of the bucket
	}
	if tat > now {
		s.hold(f.hash, now) // where there is no place, set does nothing
	}
	s.set(f.hash, tat, n)
}

// before returns the nearest earlier fare on the same key as fare i, or -1.
func (rd *ride) before(i int) int {
	for j := i - 1; j >= 0; j-- {
		if rd.fares[j].hash == rd.fares[i].hash {
			return j
		}
	}
	return -1
}
