package inspect

import (
	"context"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// subjectState is what is left to a subject, in each policy.
type subjectState struct {
	Subject string   `json:"subject"`
	Buckets []bucket `json:"buckets"`
	Reset   []string `json:"reset,omitempty"` // the policies that were reset before the redirect
	failed  bool     // there is a bucket that could not be read
}

// bucket is a subject's bucket in one policy.
type bucket struct {
	Policy   string `json:"policy"`
	HasLevel bool   `json:"known"`           // false if there is no limit, or it is unknown
	Error    string `json:"error,omitempty"` // why the bucket cannot be read: the store is away, or an override has an invalid limit
	override
	*level
	Rows   int  `json:"-"` // number of the policy's buckets, set in the first
	Shadow bool `json:"-"` // set where there is no level
}

// level is how full a bucket is.
type level struct {
	Limit     string  `json:"limit"`
	IfLimit   bool    `json:"if_limit"` // another limit may apply to the subject
	Left      int64   `json:"left"`     // units
	Burst     int64   `json:"burst"`    // units in a full bucket
	FullAfter seconds `json:"full_after_seconds"`

	PeriodEnds time.Time `json:"period_ends,omitzero"` // of a quota
}

// Used reports whether the bucket is not full.
func (l *level) Used() bool { return l.FullAfter > 0 }

// Percent is the level in percent.
func (l *level) Percent() int64 { return 100 * l.Left / max(l.Burst, 1) }

// override is the override that a subject has in a policy. The zero value is none.
type override struct {
	Override string `json:"override,omitempty"`      // its limit, none or banned
	Name     string `json:"override_name,omitempty"` // of [middleware.Override]
}

const banned = "banned" // as in a policy file

// overrideOf returns the override of a subject, the zero one if there is none. If the policy's Override
// panics, the limiter logs that and uses the limit without it, as here.
func overrideOf(p *middleware.Policy, subject string) (o middleware.Override) {
	defer func() { _ = recover() }()
	o, _ = p.OverrideOf(subject)
	return o
}

// limitsFor returns the limits that a policy may apply to a subject, and the override that they are from.
func limitsFor(p *middleware.Policy, subject string) (limits []gcra.Limit, o override) {
	switch found := overrideOf(p, subject); {
	case found.Banned:
		return nil, override{banned, found.Name}
	case found.Limit == gcra.Unlimited():
		return nil, override{found.Limit.String(), found.Name}
	case found.Limit != (gcra.Limit{}): // a missing one leaves the limit without it
		return []gcra.Limit{found.Limit}, override{found.Limit.String(), found.Name}
	}
	return p.Limits(), override{}
}

// fullAfter is how long until a bucket is full: 0 for a quota of which nothing is used,
// whatever is left of its period.
func fullAfter(l gcra.Limit, r gcra.Result) time.Duration {
	if l.IsQuota() && r.Remaining == l.Capacity() {
		return 0
	}
	return r.ResetAfter
}

// lookUp reads the subject's buckets, without charging them.
func (i *Inspector) lookUp(ctx context.Context, subject string) *subjectState {
	state := &subjectState{Subject: subject, Buckets: []bucket{}}
	policies, _ := i.current()
	for _, p := range policies {
		limits, override := limitsFor(&p, subject)
		if len(limits) == 0 {
			state.Buckets = append(state.Buckets, bucket{Policy: p.Name, override: override, Rows: 1, Shadow: p.Shadow})
		}

		// The first row of a policy spans the rows of its other limits.
		rows := len(limits)
		for _, l := range limits {
			b := bucket{Policy: p.Name, override: override, Rows: rows}
			rows = 0
			peek := []gcra.Charge{p.Charge(subject, l)}
			peek[0].Peek = true
			if _, err := i.store.Take(ctx, peek); err != nil {
				b.Error, state.failed = err.Error(), true
			} else {
				result := peek[0].Result
				b.HasLevel, b.level = true, &level{
					Limit: l.String(), IfLimit: p.LimitFor != nil && override.Override == "", Left: result.Remaining, Burst: l.Capacity(),
					FullAfter: seconds(fullAfter(l, result)), PeriodEnds: peek[0].Period.UTC(),
				}
			}
			state.Buckets = append(state.Buckets, b)
		}
	}
	return state
}
