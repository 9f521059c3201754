package send

import (
	"errors"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
)

// split answers a request whose subjects may be on different servers or in different slots by one request for each
// subject, all at once. If one is denied or fails, split refunds what the others have taken before it answers: for the time
// of a call a subject looks more charged than it is, never less.
func (s *Sender) split(whole *Request) {
	parts, indexes := whole.bySubject()
	for _, p := range parts {
		// Not inline: all parts are to be on their way at once.
		s.line(p.Keys[0]).submit(p, false)
	}

	whole.Admitted, whole.Err = true, nil // it may have an error of when it was sent whole
	for i, p := range parts {
		<-p.done
		whole.Err = errors.Join(whole.Err, p.Err)
		whole.Admitted = whole.Admitted && p.Admitted
		for j, index := range indexes[i] {
			whole.Charges[index] = p.Charges[j]
		}
	}

	if !whole.Admitted || whole.Err != nil {
		s.refundParts(parts, whole.deadline)
	}
	for _, p := range parts {
		p.Free()
	}
	whole.finish()
}

// bySubject divides a request into a part for each subject, and returns the indexes that the charges of each part have in
// the request.
func (q *Request) bySubject() (parts []*Request, indexes [][]int) {
	byTag := make(map[string]int)
	for i, key := range q.Keys {
		tag := Tag(key)
		j, known := byTag[tag]
		if !known {
			j = len(parts)
			byTag[tag] = j
			parts, indexes = append(parts, NewRequest(nil, q.Refund)), append(indexes, nil)
			parts[j].deadline, parts[j].at, parts[j].sent = q.deadline, q.at, q.sent
		}

		parts[j].Charges, parts[j].Keys = append(parts[j].Charges, q.Charges[i]), append(parts[j].Keys, key)
		indexes[j] = append(indexes[j], i)
	}
	return parts, indexes
}

// refundParts refunds what the parts of an admission have taken, and waits for that until the deadline at most. If a refund
// fails, the subject stays charged.
func (s *Sender) refundParts(parts []*Request, deadline int64) {
	now := s.Clock.Now()
	var refunds []*Request
	for _, p := range parts {
		refund := NewRequest(nil, true)
		for i, c := range p.Charges {
			// A shadow charge may be denied in a part that is admitted: it has taken nothing.
			if c.Inc > 0 && p.Admitted && c.Admits(c.Ahead) {
				c.Undo(c.Fits(c.Ahead))
				refund.Charges, refund.Keys = append(refund.Charges, c), append(refund.Keys, p.Keys[i])
			}
		}
		if len(refund.Charges) == 0 {
			continue
		}

		// With a Timeout of its own, as the admission may have little left.
		refund.at, refund.deadline = p.at, now+tat.Ticks(s.Timeout)
		refunds = append(refunds, refund)
		s.line(refund.Keys[0]).submit(refund, false)
	}

	timeout := time.After(tat.Duration(deadline - now))
	for _, refund := range refunds {
		select {
		case <-refund.done:
			refund.Free()
		case <-timeout:
			return // the refunds go on
		}
	}
}
