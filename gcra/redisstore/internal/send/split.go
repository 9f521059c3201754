package send

import (
	"context"
	"errors"
	"slices"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/await"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// split sends a request of several subjects as one part for each, all at once, and answers it. If a part is denied or fails, what
// the others have taken is refunded before that: for the time of a trip a subject looks more charged than it is, never less. If
// a refund fails, the subject stays charged.
func (s *Sender) split(whole *Request) {
	parts, indexes := whole.parts()
	now := s.Clock.Now()
	ctx, cancel := context.WithTimeoutCause(context.Background(), tat.Duration(whole.deadline-now), rediskit.NoAnswer(s.Timeout))
	defer cancel()

	// By the deadline the caller has an answer, if only an error. Then the parts and the refunds go on.
	late := await.Call(ctx, func() error {
		s.sendAll(parts, now)
		if slices.ContainsFunc(parts, func(p *Request) bool { return !p.Admitted }) {
			s.refund(parts)
		}
		return nil
	})
	if late != nil {
		whole.fail(late)
		return
	}

	whole.Admitted, whole.Err = true, nil // it may have an error from when it was sent whole
	for i, p := range parts {
		whole.Err = errors.Join(whole.Err, p.Err)
		whole.Admitted = whole.Admitted && p.Admitted
		for j, index := range indexes[i] {
			whole.Charges[index] = p.Charges[j]
		}
		p.Free()
	}
	whole.finish()
}

// sendAll sends requests at once and returns when all are answered.
func (s *Sender) sendAll(list []*Request, now int64) {
	for _, q := range list {
		s.line(q.Keys[0]).submit(now, false, q)
	}
	for _, q := range list {
		<-q.done
	}
}

// parts returns a part of the request for each subject, and the indexes that the charges of each part have in the request.
func (q *Request) parts() (parts []*Request, indexes [][]int) {
	byTag := make(map[string]int)
	for i, key := range q.Keys {
		tag := tagOf(key)
		j, known := byTag[tag]
		if !known {
			j = len(parts)
			byTag[tag] = j
			parts, indexes = append(parts, NewRequest(nil, q.Refund)), append(indexes, nil)
			parts[j].deadline, parts[j].at, parts[j].trips = q.deadline, q.at, q.trips
		}

		parts[j].Charges, parts[j].Keys = append(parts[j].Charges, q.Charges[i]), append(parts[j].Keys, key)
		indexes[j] = append(indexes[j], i)
	}
	return parts, indexes
}

// refund refunds what parts that were answered have taken, and returns when that is over. The refunds have a Timeout of their
// own, as the admission may have little left.
func (s *Sender) refund(parts []*Request) {
	var list []*Request
	now := s.Clock.Now()
	for _, p := range parts {
		r := NewRequest(nil, true)
		r.deadline = now + tat.Ticks(s.Timeout)
		for i, c := range p.Charges {
			// A shadow charge may be denied in a part that is admitted: it has taken nothing.
			if p.Admitted && c.Inc > 0 && c.Admits(c.Ahead) {
				c.Undo(c.Fits(c.Ahead))
				r.Charges, r.Keys = append(r.Charges, c), append(r.Keys, p.Keys[i])
			}
		}
		if len(r.Charges) > 0 {
			list = append(list, r)
		}
	}
	s.sendAll(list, now)
}
