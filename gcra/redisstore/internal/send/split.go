package send

import (
	"errors"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra/internal/tat"
	"github.com/seed-e377111c/ratelimit/internal/rediskit"
)

// split answers a request whose subjects may be on different servers or in different slots by one request for each
// subject, all at once. If one is denied or fails, what the others have taken is refunded before that, while the request has
// time: for the time of a trip a subject looks more charged than it is, never less. If a refund fails, the subject stays charged.
func (s *Sender) split(whole *Request) {
	parts, indexes := whole.bySubject()
	now := s.Clock.Now()
	// By the deadline the caller has an answer. From then on the request is the caller's.
	left := tat.Duration(whole.deadline - now)
	late := time.AfterFunc(left, func() { whole.fail(rediskit.NoAnswer(s.Timeout)) })
	s.sendAll(parts, now)
	waits := late.Stop()

	admitted, err := true, error(nil)
	for i, p := range parts {
		err = errors.Join(err, p.Err)
		admitted = admitted && p.Admitted
		for j, index := range indexes[i] {
			if waits {
				whole.Charges[index] = p.Charges[j]
			}
		}
	}

	if waits {
		whole.Admitted, whole.Err = admitted, err
		late = time.AfterFunc(left-tat.Duration(s.Clock.Now()-now), whole.finish)
	}
	if !admitted || err != nil {
		// With a Timeout of their own, as the admission may have little left.
		now = s.Clock.Now()
		s.sendAll(refunds(parts, now+tat.Ticks(s.Timeout)), now)
	}
	if waits && late.Stop() {
		whole.finish()
	}
	for _, p := range parts {
		p.Free()
	}
}

// sendAll sends requests at once and returns when all are answered.
func (s *Sender) sendAll(list []*Request, now int64) {
	for _, q := range list {
		s.line(q.Keys[0]).submit(q, now, false)
	}
	for _, q := range list {
		<-q.done
	}
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

// refunds makes parts that were answered refunds of what they have taken. It leaves out those that have taken nothing.
func refunds(parts []*Request, deadline int64) (list []*Request) {
	for _, p := range parts {
		taken := 0
		for i, c := range p.Charges {
			// A shadow charge may be denied in a part that is admitted: it has taken nothing.
			if p.Admitted && c.Inc > 0 && c.Admits(c.Ahead) {
				c.Undo(c.Fits(c.Ahead))
				p.Charges[taken], p.Keys[taken] = c, p.Keys[i]
				taken++
			}
		}

		p.Charges, p.Keys = p.Charges[:taken], p.Keys[:taken]
		p.Refund, p.deadline, p.sent = true, deadline, 0
		if taken > 0 {
			list = append(list, p)
		}
	}
	return list
}
