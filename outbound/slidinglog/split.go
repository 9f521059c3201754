package slidinglog

import (
	"context"
	"errors"
	"slices"
	"sync"
	"time"
)

// maxTries is how often split begins again because of other admissions.
const maxTries = 3

// split takes an admission of several subjects, which may be on different servers.
// It evaluates all parts, so that a denial writes nothing, and then takes all of
// them with the same delay. If one part is denied then, since another admission was
// faster, it gives the other parts back and begins again.
func (r *Store) split(ctx context.Context, parts []*part) error {
	for range maxTries {
		if err := each(parts, func(p *part) error { return r.take(ctx, p, evaluate, anyDelay) }); err != nil {
			return err
		}
		if !allAdmitted(parts) || !slices.ContainsFunc(parts, (*part).writes) {
			return nil
		}

		delay := time.Duration(0)
		for _, p := range parts {
			delay = max(delay, p.delay)
		}

		err := each(parts, func(p *part) error { return r.take(ctx, p, take, delay) })
		if err == nil && allAdmitted(parts) {
			return nil
		}

		// Another admission was faster, or a server failed.
		if err = errors.Join(err, r.giveBack(ctx, parts)); err != nil {
			return err
		}
	}
	return nil
}

func allAdmitted(parts []*part) bool {
	return !slices.ContainsFunc(parts, func(p *part) bool { return !p.admitted })
}

// writes reports whether the part takes any units; peeks take none.
func (p *part) writes() bool {
	return slices.ContainsFunc(p.ops, func(o *op) bool { return o.cost > 0 && o.result.Allowed })
}

// giveBack refunds the parts that were taken, and their results say so. If that fails,
// their subjects stay charged: the limit is then stricter, never looser.
func (r *Store) giveBack(ctx context.Context, parts []*part) error {
	var refunds []*part
	for _, p := range parts {
		if !p.admitted || p.err != nil {
			continue
		}

		refund := new(part)
		for _, o := range slices.Backward(p.ops) { // the newest first
			if o.result.Taken > 0 {
				refund.ops = append(refund.ops, o)
			}
		}

		if len(refund.ops) > 0 {
			refunds = append(refunds, refund)
		}
	}

	if len(refunds) == 0 {
		return nil
	}
	// The deadline of the admission may have passed.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return each(refunds, func(p *part) error { return r.refund(ctx, p, true) })
}

// each calls do for all parts concurrently and joins their errors.
func each(parts []*part, do func(*part) error) error {
	var wg sync.WaitGroup
	for _, p := range parts[1:] {
		wg.Go(func() { p.err = do(p) })
	}
	parts[0].err = do(parts[0])
	wg.Wait()

	var err error
	for _, p := range parts {
		err = errors.Join(err, p.err)
	}
	return err
}
