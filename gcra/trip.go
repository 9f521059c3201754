package gcra

import (
	"context"
	"errors"
	"slices"
	"sync"
)

// trip is an admission on its way to Redis and back.
type trip struct {
	store   *Redis
	charges []Charge
	demands []demand

	// The answer.
	ahead    []int64 // for each charge: how far ahead of now its TAT stood
	admitted bool
	err      error
}

// run takes the charges: by one script on a single server, otherwise by one
// script for each subject, which are sent together.
func (t *trip) run(ctx context.Context) {
	if t.store.whole {
		t.send(ctx)
		return
	}
	parts := t.bySubject()
	if len(parts) == 1 {
		t.send(ctx)
		return
	}
	each(parts, func(p *part) { p.send(ctx) })
	t.ahead = make([]int64, len(t.charges))
	t.admitted = true
	for _, p := range parts {
		t.err = errors.Join(t.err, p.err)
		t.admitted = t.admitted && p.admitted
		if p.err == nil {
			for i, place := range p.places {
				t.ahead[place] = p.ahead[i]
			}
		}
	}
	if t.admitted && t.err == nil {
		return
	}
	// All or none: give back what the other servers took.
	each(parts, func(p *part) {
		if p.err == nil && p.admitted {
			p.giveBack(ctx)
		}
	})
}

// send runs one script for the whole trip.
func (t *trip) send(ctx context.Context) {
	var b batch
	b.add(t.store.prefix(), t.charges, t.demands)
	t.ahead, t.err = b.run(ctx, t.store.client)
	if t.err != nil {
		return
	}
	t.admitted = t.ahead[0] >= 0
	if !t.admitted {
		for i := range t.ahead {
			t.ahead[i] = -t.ahead[i] - 1
		}
	}
}

// part is what a trip takes from one subject's buckets.
type part struct {
	trip
	places []int // where its charges stand in the whole trip
}

func (t *trip) bySubject() []*part {
	var parts []*part
	for i, c := range t.charges {
		at := slices.IndexFunc(parts, func(p *part) bool { return p.charges[0].Subject == c.Subject })
		if at < 0 {
			at = len(parts)
			parts = append(parts, &part{trip: trip{store: t.store}})
		}
		p := parts[at]
		p.charges = append(p.charges, c)
		p.demands = append(p.demands, t.demands[i])
		p.places = append(p.places, i)
	}
	return parts
}

// giveBack refunds what the part has taken. Where that fails, the subject
// stays charged: stricter, not looser.
func (p *part) giveBack(ctx context.Context) {
	var taken []Charge
	var refunds []demand
	for i, d := range p.demands {
		if d.inc > 0 && d.admits(p.ahead[i]) {
			d.inc = -d.inc
			taken, refunds = append(taken, p.charges[i]), append(refunds, d)
		}
	}
	if len(taken) > 0 {
		undo := trip{store: p.store, charges: taken, demands: refunds}
		undo.send(ctx)
	}
}

// each runs f on all parts at once and waits for the last.
func each(parts []*part, f func(*part)) {
	var wg sync.WaitGroup
	for _, p := range parts {
		wg.Go(func() { f(p) })
	}
	wg.Wait()
}
