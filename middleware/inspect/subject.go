package inspect

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/seed-e377111c/ratelimit/gcra"
	"github.com/seed-e377111c/ratelimit/internal/iface"
	"github.com/seed-e377111c/ratelimit/middleware"
)

// subjectState is what is left to a subject, in each policy.
type subjectState struct {
	Subject string   `json:"subject"`
	Buckets []bucket `json:"buckets"`
	Reset   []string `json:"reset,omitempty"` // the policies that were reset before the redirect
	Error   string   `json:"error,omitempty"` // of the reset or the look-up
}

// bucket is a subject's bucket in one policy.
type bucket struct {
	Policy   string `json:"policy"`
	HasLevel bool   `json:"known"` // false if there is no limit, or it is unknown
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
	Override string `json:"override,omitempty"`      // its limit, noLimit or banned
	Name     string `json:"override_name,omitempty"` // of [middleware.Override]
	Mistake  string `json:"mistake,omitempty"`       // why the limit cannot be charged: requests follow the policy's OnFailure
}

// The texts of overrides that lift the limit, as in a policy file, and that ban the key.
const (
	noLimit = "none"
	banned  = "banned"
)

// overrideOf returns the override of a subject, the zero one if there is none. If the policy's Override
// panics, the limiter logs that and uses the limit without it, as here.
func overrideOf(p *middleware.Policy, subject string) (o middleware.Override) {
	defer func() { _ = recover() }()
	o, _ = p.OverrideOf(subject)
	return o
}

// limitsFor returns the limits that a policy may apply to a subject, whether one is
// certain, and the override that it is from. For a policy with LimitFor they are those it
// returned lately, or else the policy's Limit.
func (i *Inspector) limitsFor(p *middleware.Policy, subject string) (limits []gcra.Limit, sure bool, o override) {
	switch found := overrideOf(p, subject); {
	case found.Banned:
		return nil, true, override{Override: banned, Name: found.Name}
	case found.Limit == gcra.Unlimited():
		return nil, true, override{Override: noLimit, Name: found.Name}
	case found.Limit != (gcra.Limit{}): // a missing one leaves the limit without it
		o = override{Override: found.Limit.String(), Name: found.Name}
		if err := unfit(i.store, p.Charge(subject, found.Limit)); err != nil {
			o.Mistake = err.Error()
			return nil, true, o
		}
		return []gcra.Limit{found.Limit}, true, o
	case p.LimitFor == nil:
		return []gcra.Limit{p.Limit}, true, o
	}

	// A denied subject has shown its own limit; for others only the policy's limits are known.
	if s := i.record.policies.Load()[p.Name]; s != nil {
		if l, ok := s.denied.limitOf(subject); ok {
			return []gcra.Limit{l}, true, o
		}
		limits = s.recentLimits()
	}

	// No request has shown a limit yet: a file with plans has one beside them.
	if len(limits) == 0 && p.Limit != (gcra.Limit{}) {
		return []gcra.Limit{p.Limit}, false, o
	}
	return limits, len(limits) == 1, o
}

// unfit returns why no bucket of the store has the charge's limit, or nil.
func unfit(store gcra.Store, c gcra.Charge) error {
	if s, ok := store.(iface.LimitChecker); ok {
		if err := s.CheckLimit(c.Limit); err != nil {
			return err
		}
	}
	_, err := gcra.Peek(context.Background(), gcra.NewMemory(gcra.MemoryConfig{Capacity: 1}), c)
	return err
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
	for _, p := range i.current() {
		limits, sure, override := i.limitsFor(&p, subject)
		if len(limits) == 0 {
			state.Buckets = append(state.Buckets, bucket{Policy: p.Name, override: override, Rows: 1, Shadow: p.Shadow})
		}

		// The first row of a policy spans the rows of its other limits.
		rows := len(limits)
		for _, l := range limits {
			peek := []gcra.Charge{p.Charge(subject, l)}
			peek[0].Peek = true
			if _, err := i.store.Take(ctx, peek); err != nil {
				state.Buckets, state.Error = []bucket{}, "The store did not answer: "+err.Error()
				return state
			}

			result := peek[0].Result
			state.Buckets = append(state.Buckets, bucket{
				Policy: p.Name, HasLevel: true, override: override, Rows: rows,
				level: &level{
					Limit: l.String(), IfLimit: !sure, Left: result.Remaining, Burst: l.Capacity(),
					FullAfter: seconds(fullAfter(l, result)), PeriodEnds: peek[0].Period.UTC(),
				},
			})
			rows = 0
		}
	}
	return state
}

// resetBuckets fills the subject's buckets in the policies named. If the error is a
// requestError, no bucket has changed.
func (i *Inspector) resetBuckets(ctx context.Context, subject string, names []string) error {
	i.record.forget(i.record.step()) // forgets limits that are older than the window

	policies := i.current()
	inForce := make([]string, len(policies))
	for k := range policies {
		inForce[k] = policies[k].Name
	}
	if len(names) == 0 {
		return requestError("the field policy is missing; want one or more of " + strings.Join(inForce, ", "))
	}

	var resets []gcra.Charge
	for n, name := range names {
		if slices.Contains(names[:n], name) {
			continue
		}

		k := slices.Index(inForce, name)
		if k < 0 {
			return requestError(fmt.Sprintf("policy is %.80q; want one or more of %s", name, strings.Join(inForce, ", ")))
		}

		limits, _, override := i.limitsFor(&policies[k], subject)
		switch {
		case override.Mistake != "":
			return requestError(fmt.Sprintf("policy %s has an override that is no limit: %s", name, override.Mistake))
		case len(limits) == 0 && override.Override != "":
			return requestError(fmt.Sprintf("the limit of this subject in policy %s is %s, by an override", name, override.Override))
		case len(limits) == 0:
			return requestError(fmt.Sprintf("the limit of policy %s depends on the request, and there was none lately", name))
		}

		// Rates share a bucket, which a reset by any of them fills; each calendar has its own.
		for j, l := range limits {
			if !slices.ContainsFunc(limits[:j], func(other gcra.Limit) bool { return other.Calendar() == l.Calendar() }) {
				resets = append(resets, policies[k].Charge(subject, l))
			}
		}
	}

	for _, c := range resets {
		if err := gcra.Reset(ctx, i.store, c); err != nil {
			return err
		}
	}
	return nil
}

// requestError is an error of the client.
type requestError string

func (m requestError) Error() string { return string(m) }
