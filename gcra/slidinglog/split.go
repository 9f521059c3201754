package slidinglog

import (
	"context"
	"errors"
	"slices"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
)

// maxTries is how often split starts again when others come in between.
const maxTries = 3

// split takes an admission whose subjects may live on different servers. It
// asks all, so that a refusal writes nothing anywhere, and then takes from all,
// held back alike. Where one refuses after all, since somebody else was faster,
// the others are given back and it begins again.
func (r *Redis) split(ctx context.Context, parts []*part) error {
	for try := 1; ; try++ {
		if err := each(parts, func(p *part) error { return r.take(ctx, p, ask, asLong) }); err != nil {
			return err
		}
		if !admitted(parts) || !slices.ContainsFunc(parts, (*part).takes) {
			return nil
		}
		hold := time.Duration(0)
		asked := make([][]gcra.Result, len(parts))
		for i, p := range parts {
			hold = max(hold, p.hold)
			for _, f := range p.fares {
				asked[i] = append(asked[i], f.result)
			}
		}
		err := each(parts, func(p *part) error { return r.take(ctx, p, take, hold) })
		if err == nil && admitted(parts) {
			return nil
		}
		err = errors.Join(err, r.giveBack(ctx, parts))
		if err != nil {
			return err
		}
		if try == maxTries {
			for i, p := range parts {
				for j, f := range p.fares {
					if p.admitted {
						f.result = asked[i][j]
					}
				}
			}
			return nil
		}
	}
}

func admitted(parts []*part) bool {
	return !slices.ContainsFunc(parts, func(p *part) bool { return !p.admitted })
}

// takes reports whether there is anything to take: peeks only look.
func (p *part) takes() bool {
	return slices.ContainsFunc(p.fares, func(f *fare) bool { return f.cost > 0 && f.result.Allowed })
}

// giveBack refunds what parts have taken. Where that fails, the subject stays
// charged: stricter, not looser.
func (r *Redis) giveBack(ctx context.Context, parts []*part) error {
	var taken []*part
	for _, p := range parts {
		if !p.admitted || p.err != nil {
			continue
		}
		undo := new(part)
		for _, f := range slices.Backward(p.fares) { // the newest first
			if f.cost > 0 && f.result.Allowed {
				back := *f
				undo.fares = append(undo.fares, &back)
			}
		}
		if len(undo.fares) > 0 {
			taken = append(taken, undo)
		}
	}
	if len(taken) == 0 {
		return nil
	}
	// The time of the admission may be up; what was taken is given back for all that.
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), time.Second)
	defer cancel()
	return each(taken, func(p *part) error { return r.refund(ctx, p, true) })
}
